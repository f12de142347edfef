//! A figure as a drawing: SVG with plotters, PNG from that SVG with resvg. Text and axes are black on nothing, so that a
//! page can give them its own colours; PNG gets a white ground.

use anyhow::{Context, Result, anyhow};
use plotters::coord::ranged1d::{KeyPointHint, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use resvg::{tiny_skia, usvg};

use super::number::{bytes, short};
use crate::result::{Axis, Figure, Plot, Role, Series};

/// Width and height of a drawing in pixels, and the width of the column of names at its right.
const SIZE: (u32, u32) = (1060, 460);
const NAMES: u32 = 290;

/// Colours of series that can be told apart without seeing red and green, on white as on black (after Okabe and Ito,
/// "Color universal design", 2008).
pub(super) const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 128, 220),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(200, 150, 0),
    RGBColor(86, 180, 233),
    RGBColor(140, 110, 200),
];
const GREY: RGBColor = RGBColor(128, 128, 128);

/// Draws a figure.
///
/// # Errors
/// A logarithmic axis with a value that is not above zero.
pub fn svg(figure: &Figure) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let (left, right) = area.split_horizontally(SIZE.0 - NAMES);
        match figure.plot {
            Plot::Lines => lines(figure, &left),
            Plot::Bars => bars(figure, &left),
        }
        .and_then(|()| names(figure, &right))
        .with_context(|| format!("drawing {:?}", figure.title))?;
        area.present().map_err(|error| anyhow!("{error}"))?;
    }
    Ok(text)
}

/// Turns a drawing of [`svg`] into a PNG, twice as large, on white.
///
/// # Errors
/// The drawing is no SVG.
pub fn png(svg: &str) -> Result<Vec<u8>> {
    let mut options = usvg::Options { font_family: "Ubuntu".into(), ..Default::default() };
    let fonts = options.fontdb_mut();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    fonts.set_sans_serif_family("Ubuntu");
    let tree = usvg::Tree::from_str(svg, &options).context("reading a drawing")?;
    let size = tree.size().to_int_size();
    let mut pixels =
        tiny_skia::Pixmap::new(2 * size.width(), 2 * size.height()).context("no pixels")?;
    pixels.fill(tiny_skia::Color::WHITE);
    resvg::render(&tree, tiny_skia::Transform::from_scale(2.0, 2.0), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| anyhow!("encoding a PNG: {error}"))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// An axis of either kind: a linear one, or a logarithmic one drawn over the logarithms.
#[derive(Clone)]
struct Scale {
    log: bool,
    bytes: bool,
    from: f64,
    to: f64,
}

impl Scale {
    fn over(axis: &Axis, values: impl Iterator<Item = f64>, from_zero: bool) -> Result<Scale> {
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            anyhow::ensure!(
                !axis.log || value > 0.0,
                "{} = {value} has no place on a logarithmic axis",
                axis.label
            );
            let value = if axis.log { value.log2() } else { value };
            (from, to) = (from.min(value), to.max(value));
        }
        anyhow::ensure!(from <= to, "no points");
        if !axis.log && from_zero {
            from = from.min(0.0);
        }
        let margin = if to > from { (to - from) * 0.05 } else { 0.5 };
        let below = if from == 0.0 { 0.0 } else { margin };
        Ok(Scale { log: axis.log, bytes: axis.unit == "B", from: from - below, to: to + margin })
    }

    fn value(&self, at: f64) -> f64 {
        if self.log { at.exp2() } else { at }
    }
}

impl Ranged for Scale {
    type FormatOption = plotters::coord::ranged1d::NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let at = if self.log { value.log2() } else { *value };
        let part = (at - self.from) / (self.to - self.from);
        limit.0 + ((limit.1 - limit.0) as f64 * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.max_num_points() == 0 {
            return Vec::new();
        }
        let most = hint.max_num_points().clamp(2, 9) as f64;
        let width = self.to - self.from;
        let step = if self.log {
            // Whole powers of two, or of 2^(whole number).
            (width / most).ceil().max(1.0)
        } else {
            let rough = width / most;
            let ten = 10f64.powf(rough.log10().floor());
            [1.0, 2.0, 5.0, 10.0].map(|k| k * ten).into_iter().find(|s| *s >= rough).unwrap_or(ten)
        };
        let first = (self.from / step).ceil() as i64;
        (first..)
            .map(|k| k as f64 * step)
            .take_while(|at| *at <= self.to)
            .map(|at| self.value(at))
            .collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.value(self.from)..self.value(self.to)
    }
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, value: &f64) -> String {
        if self.bytes { bytes(*value) } else { short(*value) }
    }
}

fn colour(series: &Series, place: usize) -> RGBColor {
    if series.role == Role::Floor { GREY } else { COLOURS[place % COLOURS.len()] }
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Scale, Scale>>;

fn failed(error: &dyn std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}

/// The axes with their titles and the mesh; `marked`: also along x.
fn chart<'a, 'b>(
    figure: &Figure,
    area: &'a Area<'b>,
    x: Scale,
    y: Scale,
    marked: bool,
) -> Result<Chart<'a, 'b>> {
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(x, y)
        .map_err(|error| failed(&error))?;
    let mut mesh = chart.configure_mesh();
    if !marked {
        mesh.disable_x_mesh().x_labels(0);
    }
    mesh.x_desc(figure.x.title())
        .y_desc(figure.y.title())
        .label_style(("sans-serif", 14))
        .bold_line_style(GREY.mix(0.35))
        .light_line_style(TRANSPARENT)
        .axis_style(BLACK)
        .draw()
        .map_err(|error| failed(&error))?;
    Ok(chart)
}

/// The series' names, each beside how it is drawn.
fn names(figure: &Figure, area: &Area) -> Result<()> {
    let text = ("sans-serif", 14).into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
    for (place, series) in figure.series.iter().enumerate() {
        let y = 28 + 22 * place as i32;
        match figure.plot {
            Plot::Lines => {
                let style = stroke(series, place);
                let (on, off) = dashes(series.role).unwrap_or((26, 0));
                for from in (4..30).step_by((on + off) as usize) {
                    let dash = PathElement::new([(from, y), ((from + on).min(30), y)], style);
                    area.draw(&dash).map_err(|error| failed(&error))?;
                }
                let dot = Circle::new((17, y), 3, colour(series, place).filled());
                area.draw(&dot).map_err(|error| failed(&error))?;
            }
            Plot::Bars => {
                let bar = Rectangle::new([(8, y - 6), (26, y + 6)], fill(series, place).filled());
                area.draw(&bar).map_err(|error| failed(&error))?;
            }
        }
        area.draw_text(&series.name, &text, (38, y)).map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn stroke(series: &Series, place: usize) -> ShapeStyle {
    colour(series, place).stroke_width(if series.role == Role::Ours { 3 } else { 2 })
}

/// Lengths of dashes and gaps of what was not measured with a library.
fn dashes(role: Role) -> Option<(i32, i32)> {
    match role {
        Role::Ours | Role::Peer => None,
        Role::Floor => Some((7, 5)),
        Role::Model => Some((2, 4)),
    }
}

fn fill(series: &Series, place: usize) -> RGBAColor {
    colour(series, place).mix(if series.role == Role::Model { 0.4 } else { 1.0 })
}

fn lines(figure: &Figure, area: &Area) -> Result<()> {
    let points = || figure.series.iter().flat_map(|series| &series.points);
    let x = Scale::over(&figure.x, points().map(|point| point.x), false)?;
    let spreads = || points().filter_map(|point| point.spread());
    let y = Scale::over(&figure.y, spreads().flat_map(|y| [y.min, y.max]), true)?;
    let mut chart = chart(figure, area, x, y, true)?;
    for (place, series) in figure.series.iter().enumerate() {
        let colour = colour(series, place);
        let style = stroke(series, place);
        let middles: Vec<(f64, f64)> = series
            .points
            .iter()
            .filter_map(|point| Some((point.x, point.spread()?.median)))
            .collect();
        let points = middles.iter().copied();
        match dashes(series.role) {
            None => chart.draw_series(LineSeries::new(points, style)).map(|_| ()),
            Some((on, off)) => {
                chart.draw_series(DashedLineSeries::new(points, on, off, style)).map(|_| ())
            }
        }
        .map_err(|error| failed(&error))?;
        let ranges = series.points.iter().filter_map(|point| {
            let y = point.spread()?;
            Some(PathElement::new([(point.x, y.min), (point.x, y.max)], colour.stroke_width(1)))
        });
        chart.draw_series(ranges).map_err(|error| failed(&error))?;
        let dots = middles.iter().map(|point| Circle::new(*point, 3, colour.filled()));
        chart.draw_series(dots).map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn bars(figure: &Figure, area: &Area) -> Result<()> {
    let mut places: Vec<f64> =
        figure.series.iter().flat_map(|series| &series.points).map(|point| point.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let spreads = figure.series.iter().flat_map(|series| &series.points).filter_map(|p| p.spread());
    let y = Scale::over(&figure.y, spreads.flat_map(|y| [y.min, y.max]), true)?;
    let floor = y.range().start;
    let bottom = if y.log { floor } else { 0.0 };
    let x = Scale { log: false, bytes: false, from: 0.0, to: places.len() as f64 };
    let mut chart = chart(figure, area, x, y, false)?;
    let width = 0.8 / figure.series.len() as f64;
    for (place, series) in figure.series.iter().enumerate() {
        let fill = fill(series, place);
        let left = |x: f64| {
            let group = places.iter().position(|other| *other == x).unwrap_or(0);
            group as f64 + 0.1 + width * place as f64
        };
        let columns = series.points.iter().filter_map(|point| {
            let y = point.spread()?.median;
            let left = left(point.x);
            Some(Rectangle::new([(left, bottom), (left + width * 0.94, y)], fill.filled()))
        });
        chart.draw_series(columns).map_err(|error| failed(&error))?;
        let ranges = series.points.iter().filter_map(|point| {
            let y = point.spread()?;
            let middle = left(point.x) + width * 0.47;
            Some(PathElement::new([(middle, y.min), (middle, y.max)], BLACK.stroke_width(1)))
        });
        chart.draw_series(ranges).map_err(|error| failed(&error))?;
    }
    let text = ("sans-serif", 14).into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
    let shown = |x: f64| if figure.x.unit == "B" { bytes(x) } else { short(x) };
    for (group, x) in places.iter().enumerate() {
        let (at, below) = chart.backend_coord(&(group as f64 + 0.5, floor));
        area.draw_text(&shown(*x), &text, (at, below + 8)).map_err(|error| failed(&error))?;
    }
    Ok(())
}
