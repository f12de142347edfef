//! The text of `include/mp/layout.cuh`, from the table of `layout.rs`. Only tests need it: they keep the committed header
//! equal to the table, and rewrite it when told to.

use std::fmt::Write as _;

use crate::layout::{Enumerator, Field, LAYOUTS, Layout, StepKind, WaitStatus};

fn header() -> String {
    let mut text = String::from(HEADER_TOP);
    // Writing to a String cannot fail.
    let _ = write_enum(&mut text, WaitStatus::NAME, WaitStatus::DOC, WaitStatus::ENUMERATORS);
    let _ = write_enum(&mut text, StepKind::NAME, StepKind::DOC, StepKind::ENUMERATORS);
    for layout in LAYOUTS {
        let _ = write_struct(&mut text, layout);
    }
    text.push_str("\n}  // namespace mp\n");
    text
}

const HEADER_TOP: &str = "\
// Structs shared by Rust and device code. GENERATED from kernels/src/layout.rs, which declares them; to change one,
// change it there and run MP_REGENERATE=1 cargo test -p mp-kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mp {
";

fn write_enum(
    out: &mut String,
    name: &str,
    doc: &[&str],
    enumerators: &[Enumerator],
) -> std::fmt::Result {
    writeln!(out)?;
    for line in doc {
        writeln!(out, "//{line}")?;
    }
    writeln!(out, "enum {name} : std::uint32_t {{")?;
    for value in enumerators {
        for line in value.doc {
            writeln!(out, "    //{line}")?;
        }
        writeln!(out, "    {} = {},", value.name, value.code)?;
    }
    writeln!(out, "}};")
}

fn write_struct(out: &mut String, layout: &Layout) -> std::fmt::Result {
    let Layout { name, doc, size, align, fields } = layout;
    writeln!(out)?;
    for line in *doc {
        writeln!(out, "//{line}")?;
    }
    writeln!(out, "struct {name} {{")?;
    for field in *fields {
        for line in field.doc {
            writeln!(out, "    //{line}")?;
        }
        writeln!(out, "    {} {};", field.c_type, field.name)?;
    }
    writeln!(out, "}};")?;
    writeln!(out, "static_assert(sizeof({name}) == {size} && alignof({name}) == {align});")?;
    for Field { name: field, offset, .. } in *fields {
        writeln!(out, "static_assert(offsetof({name}, {field}) == {offset});")?;
    }
    Ok(())
}

#[test]
fn the_committed_header_is_the_one_generated_from_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/include/mp/layout.cuh");
    if std::env::var_os("MP_REGENERATE").is_some_and(|value| value == "1") {
        std::fs::write(path, header()).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(
        committed == header(),
        "include/mp/layout.cuh is not what layout.rs declares: MP_REGENERATE=1 cargo test -p mp-kernels"
    );
}

#[test]
fn fields_follow_each_other_without_gaps() {
    for layout in LAYOUTS {
        let mut end = 0;
        for field in layout.fields {
            assert_eq!(field.offset, end, "{}.{}", layout.name, field.name);
            end += field.size;
        }
        assert_eq!(end, layout.size, "{}", layout.name);
    }
}

#[test]
fn the_header_asserts_every_size_and_offset() {
    let text = header();
    for layout in LAYOUTS {
        assert!(text.contains(&format!("sizeof({}) == {}", layout.name, layout.size)));
        for field in layout.fields {
            let offset = format!("offsetof({}, {}) == {}", layout.name, field.name, field.offset);
            assert!(text.contains(&offset), "{offset}");
        }
    }
}

#[test]
fn a_status_read_from_a_report_is_the_one_written() {
    for status in
        [WaitStatus::Ok, WaitStatus::Aborted, WaitStatus::TimedOut, WaitStatus::PathFailed]
    {
        assert_eq!(WaitStatus::from_code(status as u32), Some(status));
    }
    assert_eq!(WaitStatus::from_code(4), None);
    assert_eq!(
        WaitStatus::from_code(0),
        Some(WaitStatus::Ok),
        "a zeroed report says that nothing failed"
    );
}
