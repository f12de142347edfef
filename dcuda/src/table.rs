//! What the programs print: a line for each form and size, and the same as JSON.

use anyhow::Result;
use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use mp_program::Spread;
use serde::Serialize;

use crate::machine::{Machine, Plan};

/// Units.
#[derive(Debug, Clone, Copy, Serialize)]
pub enum Unit {
    /// Of an iteration, ms.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Of a message, µs.
    #[serde(rename = "us")]
    OneWay,
    /// Of all pairs together, millions of messages a second.
    #[serde(rename = "M/s")]
    Rate,
    /// Of all pairs together.
    #[serde(rename = "GB/s")]
    Bandwidth,
    /// Of the computation alone.
    #[serde(rename = "t_c ms")]
    Computing,
    /// Of the exchange alone.
    #[serde(rename = "t_x ms")]
    Exchanging,
    /// Of both.
    #[serde(rename = "t ms")]
    Together,
    /// (t_c + t_x − t) / min(t_c, t_x).
    #[serde(rename = "eta")]
    Hidden,
    /// How much longer, in percent.
    #[serde(rename = "%")]
    Slower,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Milliseconds => "ms an iteration",
            Unit::OneWay => "µs one way",
            Unit::Rate => "million messages/s",
            Unit::Bandwidth => "GB/s",
            Unit::Computing => "ms computation, t_c",
            Unit::Exchanging => "ms exchange, t_x",
            Unit::Together => "ms both, t",
            Unit::Hidden => "η = (t_c + t_x − t) / min",
            Unit::Slower => "% slower",
        }
    }
}

/// A figure, or only that the results were right.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    program: &'static str,
    form: String,
    size: String,
    machine: String,
    /// What is varied, for a drawing: units of computation, bytes.
    over: Option<f64>,
    figure: Option<(Unit, Spread)>,
}

impl Line {
    /// A figure of a form that has been checked.
    pub fn new(
        program: &'static str,
        form: &str,
        size: String,
        machine: &Machine,
        unit: Unit,
        spread: Spread,
    ) -> Line {
        let figure = Some((unit, spread));
        Line { program, form: form.into(), size, machine: machine.what(), over: None, figure }
    }

    /// A form that has been checked and not measured.
    pub fn checked(program: &'static str, form: &str, machine: &Machine) -> Line {
        let (form, size) = (form.into(), String::new());
        Line { program, form, size, machine: machine.what(), over: None, figure: None }
    }

    /// The same at a place of what is varied.
    pub fn over(self, at: f64) -> Line {
        Line { over: Some(at), ..self }
    }
}

/// Runs so many iterations of a program in one of its forms.
pub type Run<'a> = &'a dyn Fn(u64) -> Result<()>;

/// Compares each form of a program with the serial run, by `check` after `begin` and the plan's iterations, and measures it.
///
/// # Errors
/// Of these; what fails.
pub fn forms(
    (machine, plan): (&Machine, &Plan),
    (program, size): (&'static str, &str),
    begin: impl Fn() -> Result<()>,
    check: impl Fn(&str) -> Result<()>,
    forms: &[(&str, Run<'_>)],
) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (form, run) in forms {
        begin()?;
        run(plan.check)?;
        check(form)?;
        // Until nobody looks at the results any more.
        machine.world.barrier()?;
        if plan.iterations == 0 {
            lines.push(Line::checked(program, form, machine));
            continue;
        }
        begin()?;
        let spread = machine.time(plan, run)?;
        lines.push(Line::new(program, form, size.into(), machine, Unit::Milliseconds, spread));
    }
    Ok(lines)
}

/// Where it ran, and a table.
pub fn table(lines: &[Line]) -> String {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header(["program", "form", "size", "median", "least", "most", "unit", "checked"]);
    for line in lines {
        let mut row = vec![Cell::new(line.program), Cell::new(&line.form), Cell::new(&line.size)];
        let number =
            |value: f64| Cell::new(format!("{value:.4}")).set_alignment(CellAlignment::Right);
        match &line.figure {
            Some((unit, spread)) => {
                row.extend([spread.median, spread.min, spread.max].map(number));
                row.push(Cell::new(unit.name()));
            }
            None => row.extend(["", "", "", ""].map(Cell::new)),
        }
        row.push(Cell::new("right"));
        table.add_row(row);
    }
    let machine = lines.first().map_or("", |line| &line.machine);
    format!("{machine}\n{table}")
}
