//! Numbers as people read them.

/// Three significant digits, without an exponent where one can do without.
pub fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let size = value.abs();
    if !(1e-3..1e6).contains(&size) {
        return format!("{value:.2e}");
    }
    let digits = (2 - size.log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// A number of bytes with a binary prefix: "64 KiB".
pub fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = value;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < units.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{} {}", short(size), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1.338, "1.34"),
            (25.44, "25.4"),
            (2.0, "2"),
            (352.4, "352"),
            (12345.6, "12346"),
            (1.4e9, "1.40e9"),
            (0.5, "0.5"),
            (-1.25, "-1.25"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn bytes_have_binary_prefixes() {
        assert_eq!(bytes(8.0), "8 B");
        assert_eq!(bytes(65536.0), "64 KiB");
        assert_eq!(bytes(1.5 * 1024.0 * 1024.0), "1.5 MiB");
    }
}
