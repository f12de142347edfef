//! A small drawing as SVG: lines, dots, bars and words on white ground, so that it can be read on any page. What it shows is the
//! caller's; diagrams with axes are not made here.

use std::fmt::Write;

/// Colours that can be told apart without seeing red and green: what is good, what is not.
pub const BLUE: &str = "#0080dc";
/// See [`BLUE`].
pub const ORANGE: &str = "#d55e00";
/// Words.
pub const INK: &str = "#1a1a1a";
/// Words beside others.
pub const GREY: &str = "#6b7280";
/// Lines that only guide the eye.
pub const PALE: &str = "#d5d7db";

/// On which side of its place a text is. See [`Drawing`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It ends there.
    Before,
    /// Its middle is there.
    Around,
    /// It begins there.
    Behind,
}

/// A drawing, in pixels from its upper left corner.
///
/// ```
/// use mp_program::drawing::{Drawing, INK, Side};
///
/// let mut drawing = Drawing::new(200.0, 40.0);
/// drawing.text((10.0, 20.0), Side::Behind, 13, INK, "less < more");
/// assert!(drawing.finish().contains("less &lt; more"));
/// ```
#[derive(Debug)]
pub struct Drawing {
    svg: String,
}

impl Drawing {
    /// An empty one.
    pub fn new(width: f64, height: f64) -> Drawing {
        Drawing {
            svg: format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
                 height=\"{height}\" font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
            ),
        }
    }

    /// Words, `size` pixels high.
    pub fn text(&mut self, (x, y): (f64, f64), side: Side, size: u32, colour: &str, text: &str) {
        let anchor = match side {
            Side::Before => "end",
            Side::Around => "middle",
            Side::Behind => "start",
        };
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        _ = writeln!(
            self.svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{colour}\">{text}</text>"
        );
    }

    /// A line from one place to another.
    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str) {
        _ = writeln!(
            self.svg,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
        );
    }

    /// A dot; `opacity`: 0 to 1.
    pub fn dot(&mut self, (x, y): (f64, f64), radius: f64, colour: &str, opacity: f64) {
        _ = writeln!(
            self.svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\" fill-opacity=\"{opacity:.2}\"/>"
        );
    }

    /// A bar by its upper left corner, width and height.
    pub fn bar(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
        _ = writeln!(
            self.svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        );
    }

    /// The file.
    pub fn finish(self) -> String {
        self.svg + "</svg>\n"
    }
}
