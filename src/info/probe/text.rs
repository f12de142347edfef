//! The self-test as text for people.

use std::fmt::Write;

use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};

use super::Probe;

/// Writes what every step got.
pub fn render(probe: &Probe) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(probe, &mut out);
    out
}

fn write(probe: &Probe, out: &mut String) -> std::fmt::Result {
    for provider in &probe.providers {
        let verdict = if provider.works() { "works" } else { "FAILS" };
        writeln!(out, "{}: {verdict}", provider.name)?;
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED).set_header(["step", "expected", "seen"]);
        for step in &provider.steps {
            let seen = match (&step.got, &step.error) {
                (_, Some(error)) => format!("FAILED: {error}"),
                (got, None) => got.clone().unwrap_or_default(),
            };
            table.add_row([&step.what, &step.expected, &seen]);
        }
        writeln!(out, "{table}")?;
        writeln!(out)?;
    }
    match &probe.no_hardware {
        Some(why) => writeln!(out, "RDMA hardware: none ({why})"),
        None => Ok(()),
    }
}
