//! Lines that ranks print.

use std::fmt::Write as _;

use mp_kernels::LogLine;

/// A line that a rank printed: `mp::print`.
///
/// ```
/// use dranks::Line;
///
/// let line = Line { rank: 3, text: "2 of 5".into() };
/// assert_eq!(line.to_string(), "rank 3: 2 of 5");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Whose, in the world of device ranks.
    pub rank: u32,
    /// The text with its values.
    pub text: String,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {}: {}", self.rank, self.text)
    }
}

impl Line {
    /// The text has a `{}` for each value; what one side has more than the other stays as it is, or is left out.
    pub(crate) fn of(line: &LogLine) -> Line {
        let bytes: Vec<u8> = line.text.iter().flat_map(|word| word.to_le_bytes()).collect();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        let format = String::from_utf8_lossy(&bytes[..end]);
        let values = (line.kinds & 0xff) as usize;
        let mut text = String::new();
        let mut parts = format.split("{}");
        text.push_str(parts.next().unwrap_or_default());
        for (place, part) in parts.enumerate() {
            match line.values.get(place).filter(|_| place < values) {
                Some(&value) => {
                    // Writing to a String cannot fail.
                    let _ = match line.kinds >> (8 + 2 * place) & 3 {
                        0 => write!(text, "{value}"),
                        1 => write!(text, "{}", value as i64),
                        _ => write!(text, "{}", f64::from_bits(value)),
                    };
                }
                None => text.push_str("{}"),
            }
            text.push_str(part);
        }
        Line { rank: line.rank, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: &str, kinds: u32, values: &[u64]) -> LogLine {
        let mut line: LogLine = bytemuck::Zeroable::zeroed();
        bytemuck::cast_slice_mut(&mut line.text)[..format.len()].copy_from_slice(format.as_bytes());
        line.values[..values.len()].copy_from_slice(values);
        line.kinds = kinds << 8 | values.len() as u32;
        line
    }

    #[test]
    fn values_stand_where_the_text_says() {
        let made = line("a {} b {}{}", 0b10_01_00, &[7, -3_i64 as u64, 0.5_f64.to_bits()]);
        assert_eq!(Line::of(&made).text, "a 7 b -30.5");
        assert_eq!(Line::of(&line("{} {}", 0, &[1])).text, "1 {}");
        assert_eq!(Line::of(&line("none", 0, &[1])).text, "none");
    }
}
