//! Writes `shmemg.h`: prototypes of the functions for the host, and the functions for kernels, each a call of `mp/shmem.cuh`.

use std::fmt::Write;

use super::header::{declaration, prototype};
use super::table::{Entry, Function, Line, Table};

/// What stands before the prototypes, and before the functions for kernels.
const BEGIN: &str = include_str!("device.h");
const KERNELS: &str = include_str!("kernels.h");

/// Suffixes of the forms for groups of threads, and the groups.
const GROUPS: [(&str, &str); 3] =
    [("", "mp::thread()"), ("_tg", "mp::block()"), ("_htg", "mp::warp()")];

pub fn device_header(table: &Table<'_>) -> String {
    let mut text = BEGIN.to_owned();
    let is_for_kernels = |function: &Function<'_>| function.has("kernel");
    part(&mut text, table, |text, function| {
        let entries = if is_for_kernels(function) { Vec::new() } else { table.entries(function) };
        entries.iter().map(|entry| prototype(text, entry, "")).collect::<Result<Vec<_>, _>>()
    });
    text.push_str(KERNELS);
    part(&mut text, table, |text, function| {
        let mut entries =
            if is_for_kernels(function) { table.entries(function) } else { Vec::new() };
        // Compilers for GPUs have no such numbers.
        entries.retain(|entry| entry.of.is_none_or(|of| of.name != "longdouble"));
        let forms = if function.has("groups") { &GROUPS[..] } else { &GROUPS[..1] };
        let entries = entries.iter().flat_map(|entry| forms.iter().map(move |form| (entry, form)));
        entries.map(|(entry, form)| kernel(text, entry, *form)).collect::<Result<Vec<_>, _>>()
    });
    text.push_str("\n#endif\n#endif /* SHMEMG_H */\n");
    text
}

/// The functions that `write` writes, with the titles of sections in which there are some.
fn part(
    text: &mut String,
    table: &Table<'_>,
    write: impl Fn(&mut String, &Function<'_>) -> Result<Vec<()>, std::fmt::Error>,
) {
    let mut section = None;
    for line in &table.lines {
        match line {
            Line::Section(title) => section = Some(title),
            Line::Function(function) => {
                let mut written = String::new();
                write(&mut written, function).expect("a string takes it");
                if let Some(title) = section.take_if(|_| !written.is_empty()) {
                    text.push_str(&format!("\n/* {title} */\n"));
                }
                text.push_str(&written);
            }
        }
    }
}

/// A function for kernels of a group of threads.
fn kernel(
    text: &mut String,
    entry: &Entry<'_, '_>,
    (suffix, group): (&str, &str),
) -> std::fmt::Result {
    let function = entry.function;
    let context = if entry.ctx { "ctx" } else { "SHMEM_DEVICE_CTX_DEFAULT" };
    let first = [
        function.has("groups").then_some(group),
        Some("shmemg_world"),
        function.has("ctx").then_some(context),
    ];
    let given = function.parameters.iter().map(|parameter| parameter.name);
    let given: Vec<&str> = first.into_iter().flatten().chain(given).collect();
    let back = if function.result == "void" { "" } else { "return " };
    writeln!(
        text,
        "SHMEMG_KERNEL {} {{ {back}mp::shmem::{}({}); }}",
        declaration(entry, &format!("{}{suffix}", entry.name())),
        function.rust,
        given.join(", ")
    )
}
