//! The self-test as text for people.

use std::fmt::Write;

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
        for step in &provider.steps {
            match (&step.got, &step.error) {
                (_, Some(error)) => writeln!(out, "  {:<44} FAILED: {error}", step.what)?,
                (got, None) => {
                    writeln!(out, "  {:<44} {}", step.what, got.as_deref().unwrap_or(""))?
                }
            }
        }
        writeln!(out)?;
    }
    match &probe.no_hardware {
        Some(why) => writeln!(out, "RDMA hardware: none ({why})"),
        None => Ok(()),
    }
}
