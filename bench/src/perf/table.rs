//! Figures as a table on the terminal, and as CSV.

use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_FULL_CONDENSED};

use crate::result::Results;

/// Prints every figure as a table and the method below.
pub fn print(results: &Results) {
    for figure in &results.figures {
        mp_program::outln!("{}", figure.title);
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        let y = figure.y.title();
        table.set_header([
            "form".to_owned(),
            figure.x.title(),
            format!("{y} (median)"),
            "min".to_owned(),
            "max".to_owned(),
            "99 %".to_owned(),
        ]);
        for series in &figure.series {
            for point in &series.points {
                let Some(spread) = point.spread() else { continue };
                let number = |value: f64| right(format!("{value:.3}"));
                table.add_row([
                    Cell::new(&series.name),
                    right(format!("{}", point.x)),
                    number(spread.median),
                    number(spread.min),
                    number(spread.max),
                    point.p99.map_or(right("-".into()), number),
                ]);
            }
        }
        mp_program::outln!("{table}");
    }
    for sentence in &results.method {
        mp_program::outln!("{sentence}");
    }
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// One line for each point: figure, form, x, median, min, max, p99, repeats.
pub fn csv(results: &Results) -> String {
    let mut text = String::from("figure,form,x,median,min,max,p99,repeats\n");
    for figure in &results.figures {
        for series in &figure.series {
            for point in &series.points {
                let Some(spread) = point.spread() else { continue };
                let p99 = point.p99.map_or(String::new(), |p99| p99.to_string());
                text += &format!(
                    "{},{},{},{},{},{},{p99},{}\n",
                    quoted(&figure.title),
                    quoted(&series.name),
                    point.x,
                    spread.median,
                    spread.min,
                    spread.max,
                    spread.count
                );
            }
        }
    }
    text
}

/// A field of RFC 4180.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_and_quotes_are_quoted() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
