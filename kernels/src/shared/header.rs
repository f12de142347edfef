//! The C++ header of a crate's shared declarations.

use std::fmt::Write as _;

use super::{Constant, Enumeration, Field, Layout};

/// What a header is made of.
///
/// See [`shared`](super) for an example.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    /// The file that declares what is in it, from the root of the repository.
    pub source: &'static str,
    /// The package whose tests rewrite it.
    pub package: &'static str,
    /// Headers of structs that its structs have.
    pub includes: &'static [&'static str],
    /// C++ namespace of all of it.
    pub namespace: &'static str,
    /// The constants.
    pub constants: &'static [Constant],
    /// The enums.
    pub enums: &'static [Enumeration],
    /// The structs.
    pub structs: &'static [Layout],
}

impl Header {
    /// The text of the header.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    /// Compares the text with the committed file, or, with `MP_REGENERATE=1`, writes the file. For a test of the crate.
    ///
    /// # Errors
    /// The file cannot be read or written, or is another text: what to do then.
    pub fn check(&self, path: &str) -> Result<(), String> {
        let (text, package) = (self.text(), self.package);
        let failed = |error: std::io::Error| format!("{path}: {error}");
        if std::env::var_os("MP_REGENERATE").is_some_and(|value| value == "1") {
            return std::fs::write(path, text).map_err(failed);
        }
        if std::fs::read_to_string(path).map_err(failed)? == text {
            return Ok(());
        }
        let source = self.source;
        Err(format!(
            "{path} is not what {source} declares: MP_REGENERATE=1 cargo test -p {package}"
        ))
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Header { source, package, namespace, .. } = self;
        writeln!(
            out,
            "// What Rust and device code share. GENERATED from {source}, which declares it; to change it, change it there and\n\
             // run MP_REGENERATE=1 cargo test -p {package}.\n#pragma once\n\n#include <cstddef>\n#include <cstdint>"
        )?;
        for include in self.includes {
            writeln!(out, "#include <{include}>")?;
        }
        writeln!(out, "\nnamespace {namespace} {{")?;
        for constant in self.constants {
            write_constant(out, constant)?;
        }
        for one in self.enums {
            write_enum(out, one)?;
        }
        for layout in self.structs {
            write_struct(out, layout)?;
        }
        writeln!(out, "\n}}  // namespace {namespace}")
    }
}

fn write_doc(out: &mut String, indent: &str, doc: &[&str]) -> std::fmt::Result {
    // What follows the first paragraph is rustdoc's: links and examples.
    doc.iter()
        .take_while(|line| !line.is_empty())
        .try_for_each(|line| writeln!(out, "{indent}//{line}"))
}

fn write_constant(out: &mut String, constant: &Constant) -> std::fmt::Result {
    let Constant { name, doc, c_type, value } = constant;
    writeln!(out)?;
    write_doc(out, "", doc)?;
    writeln!(out, "constexpr {c_type} {name} = {value};")
}

fn write_enum(out: &mut String, one: &Enumeration) -> std::fmt::Result {
    let Enumeration { name, doc, values } = one;
    writeln!(out)?;
    write_doc(out, "", doc)?;
    writeln!(out, "enum [[nodiscard]] {name} : std::uint32_t {{")?;
    for value in *values {
        write_doc(out, "    ", value.doc)?;
        writeln!(out, "    {} = {},", value.name, value.code)?;
    }
    writeln!(out, "}};")
}

fn write_struct(out: &mut String, layout: &Layout) -> std::fmt::Result {
    let Layout { name, doc, size, align, fields } = layout;
    writeln!(out)?;
    write_doc(out, "", doc)?;
    writeln!(out, "struct {name} {{")?;
    for field in *fields {
        write_doc(out, "    ", field.doc)?;
        let elements = field.elements.map_or(String::new(), |count| format!("[{count}]"));
        writeln!(out, "    {} {}{elements};", field.c_type, field.name)?;
    }
    writeln!(out, "}};")?;
    writeln!(out, "static_assert(sizeof({name}) == {size} && alignof({name}) == {align});")?;
    for Field { name: field, offset, .. } in *fields {
        writeln!(out, "static_assert(offsetof({name}, {field}) == {offset});")?;
    }
    Ok(())
}
