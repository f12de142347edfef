//! Writes `shmem.h`: prototypes for C, the choice by type for C11 and C++.

use std::fmt::Write;

use super::entries::is_by_value;
use super::table::{Entry, Function, Line, Table, Type};

/// What stands before the prototypes, and behind the last line.
const BEGIN: &str = include_str!("begin.h");
const C11: &str = include_str!("c11.h");
const PROFILING: &str = include_str!("profiling.h");
const EXTENSIONS: &str = include_str!("extensions.h");
const CXX: &str = include_str!("cxx.h");

pub fn header(table: &Table<'_>) -> String {
    let mut text = BEGIN.to_owned();
    for line in &table.lines {
        match line {
            Line::Section(title) => write!(text, "\n/* {title} */\n"),
            Line::Function(function) => {
                table.entries(function).iter().try_for_each(|entry| prototype(&mut text, entry, ""))
            }
        }
        .expect("a string takes it");
    }
    let generic = table.lines.iter().filter_map(|line| match line {
        Line::Function(function) if function.has("generic") => Some(function),
        _ => None,
    });
    let generic: Vec<&Function<'_>> = generic.collect();
    text.push_str("\n#ifdef __cplusplus\n} /* extern \"C\" */\n\n/* For every type */\n");
    for function in &generic {
        let types = function.distinct_types(table);
        let forms: &[bool] = if function.has("ctx") { &[false, true] } else { &[false] };
        for (ctx, of) in forms.iter().flat_map(|ctx| types.iter().map(move |of| (*ctx, *of))) {
            let entry = Entry { function, of: Some(of), ctx };
            overload(&mut text, &entry).expect("a string takes it");
        }
    }
    text.push_str(CXX);
    text.push_str("\n#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L\n");
    text.push_str(C11);
    for function in &generic {
        choice(&mut text, table, function).expect("a string takes it");
    }
    text.push_str("\n#endif\n#endif /* SHMEM_H */\n");
    text
}

/// `shmemx.h`.
pub fn extensions_header(table: &Table<'_>) -> String {
    let mut text = EXTENSIONS.to_owned();
    for line in &table.lines {
        let Line::Function(function) = line else { continue };
        let mut entries = table.entries(function).into_iter();
        entries.try_for_each(|entry| prototype(&mut text, &entry, "")).expect("a string takes it");
    }
    text.push_str("#ifdef __cplusplus\n}\n#endif\n#endif /* SHMEMX_H */\n");
    text
}

/// `pshmem.h`: the second names, by which tools for profiling call what they have put themselves in front of.
pub fn profiling_header(table: &Table<'_>) -> String {
    let mut text = PROFILING.to_owned();
    for line in &table.lines {
        let Line::Function(function) = line else { continue };
        let entries = table.entries(function);
        let mut second = entries.iter().filter(|entry| entry.name().starts_with("shmem_"));
        second.try_for_each(|entry| prototype(&mut text, entry, "p")).expect("a string takes it");
    }
    text.push_str("\n#ifdef __cplusplus\n}\n#endif\n#endif /* PSHMEM_H */\n");
    text
}

/// `TYPE NAME(PARAMETERS)`, by which name it may have.
pub fn declaration(entry: &Entry<'_, '_>, name: &str) -> String {
    let parameters = entry.parameters();
    let parameters = parameters.iter().map(|parameter| typed(entry, parameter.c, parameter.name));
    let parameters = match parameters.collect::<Vec<_>>() {
        none if none.is_empty() => "void".into(),
        some => some.join(", "),
    };
    format!("{}({parameters})", typed(entry, entry.function.result, name))
}

fn typed(entry: &Entry<'_, '_>, c: &str, name: &str) -> String {
    let c = entry.c_type(c);
    let space = if c.ends_with('*') || name.is_empty() { "" } else { " " };
    format!("{c}{space}{name}")
}

pub fn prototype(text: &mut String, entry: &Entry<'_, '_>, prefix: &str) -> std::fmt::Result {
    let declaration = declaration(entry, &format!("{prefix}{}", entry.name()));
    if entry.function.has("plain") {
        return writeln!(text, "#ifndef __cplusplus\n{declaration};\n#endif");
    }
    if !is_by_value(entry) {
        return writeln!(text, "{declaration};");
    }
    // A `long double` by value: by its bytes.
    let ctx = if entry.ctx { ("ctx_", "ctx, ") } else { ("", "") };
    let body = match entry.function.parameters.iter().any(|parameter| parameter.c == "TYPE") {
        true => format!("shmem_{}putmem({}dest, &value, sizeof value, pe);", ctx.0, ctx.1),
        false => format!(
            "long double value; shmem_{}getmem({}&value, source, sizeof value, pe); return value;",
            ctx.0, ctx.1
        ),
    };
    writeln!(text, "static inline {declaration} {{ {body} }}")
}

/// The name without a type, for C++.
fn overload(text: &mut String, entry: &Entry<'_, '_>) -> std::fmt::Result {
    let declaration = declaration(entry, &entry.function.generic_name());
    let given: Vec<&str> = entry.parameters().iter().map(|parameter| parameter.name).collect();
    let back = if entry.function.result == "void" { "" } else { "return " };
    writeln!(
        text,
        "static inline {declaration} {{ {back}{}({}); }}",
        entry.name(),
        given.join(", ")
    )
}

/// The name without a type, for C11: by the first argument that has it.
fn choice(text: &mut String, table: &Table<'_>, function: &Function<'_>) -> std::fmt::Result {
    let at = function.parameters.iter().position(|parameter| parameter.c.contains("TYPE"));
    let at = at.expect("a generic function has a type");
    let qualifier = function.parameters[at].c.split("TYPE").next().unwrap_or_default();
    let ways = |ctx: bool| -> String {
        let types = function.distinct_types(table).into_iter();
        let way = |of: Type<'_>| {
            let name = Entry { function, of: Some(of), ctx }.name();
            let mut ways = format!("{} *: {name}", of.c);
            if !qualifier.is_empty() {
                write!(ways, ", \\\n        {qualifier}{} *: {name}", of.c)
                    .expect("a string takes it");
            }
            ways
        };
        types.map(way).collect::<Vec<_>>().join(", \\\n        ")
    };
    let name = function.generic_name();
    writeln!(text, "#define {name}(...) _Generic((SHMEM_ARGUMENT_{at}(__VA_ARGS__)), \\")?;
    if function.has("ctx") {
        let next = at + 1;
        write!(
            text,
            "    shmem_ctx_t: _Generic((SHMEM_ARGUMENT_{next}(__VA_ARGS__)), \\\n        {}, \\\n        ",
            ways(true)
        )?;
        writeln!(text, "default: shmem_no_such_type), \\")?;
    }
    writeln!(text, "        {})(__VA_ARGS__)", ways(false))
}
