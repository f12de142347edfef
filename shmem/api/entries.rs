//! Writes the entry points of the library: a function of Rust for each of C.

use std::fmt::Write;

use super::table::{Entry, Line, Parameter, Table};

/// A type of C as Rust writes it.
fn rust_type(entry: &Entry<'_, '_>, c: &str) -> String {
    let of = entry.of.map_or("", |of| of.rust);
    let pointer = |to: &str| -> Option<String> {
        Some(match to {
            "TYPE" => of.to_owned(),
            "void" => "c_void".into(),
            "char" => "c_char".into(),
            other => scalar(other)?,
        })
    };
    if c == "TYPE" {
        return of.into();
    }
    if let Some(to) = c.strip_suffix('*') {
        let to = to.trim();
        let (is_const, to) = match to.strip_prefix("const ") {
            Some(to) => (true, to),
            None => (false, to.strip_prefix("volatile ").unwrap_or(to)),
        };
        let to = pointer(to).unwrap_or_else(|| panic!("unknown type: {c}"));
        return format!("*{} {to}", if is_const { "const" } else { "mut" });
    }
    scalar(c).unwrap_or_else(|| panic!("unknown type: {c}"))
}

fn scalar(c: &str) -> Option<String> {
    Some(match c {
        "int" => "c_int".into(),
        "long" => "c_long".into(),
        "size_t" => "usize".into(),
        "ptrdiff_t" => "isize".into(),
        "uint64_t" => "u64".into(),
        "shmem_ctx_t" => "Context".into(),
        "shmem_team_t" => "Handle".into(),
        "shmem_team_config_t" => "Config".into(),
        "shmem_ctx_session_config_t" => "SessionConfig".into(),
        "struct shmemg_module" => "Module".into(),
        _ => return None,
    })
}

/// `include!`d by the crate, where the modules that the table names are.
pub fn entries(table: &Table<'_>) -> String {
    let mut text = String::new();
    for line in &table.lines {
        let Line::Function(function) = line else { continue };
        // The header has what kernels call.
        if function.has("kernel") {
            continue;
        }
        for entry in table.entries(function) {
            // The header defines it.
            if is_by_value(&entry) {
                continue;
            }
            let name = entry.name();
            let fixed = |parameter: &Parameter<'_>| parameter.c != "...";
            let declared: Vec<String> = (entry.parameters().into_iter().filter(fixed))
                .map(|parameter| format!("{}: {}", parameter.name, rust_type(&entry, parameter.c)))
                .collect();
            let result = match function.result {
                "void" => String::new(),
                c => format!(" -> {}", rust_type(&entry, c)),
            };
            let given =
                function.parameters.iter().filter(|parameter| fixed(parameter)).map(|parameter| {
                    // Of the sizes, C does not know the type.
                    let untyped = entry.of.is_some() && parameter.c.contains("void");
                    format!("{}{}", parameter.name, if untyped { ".cast()" } else { "" })
                });
            let context = function.has("ctx").then(|| match entry.ctx {
                true => "ctx".to_owned(),
                false => "Context::DEFAULT".to_owned(),
            });
            let given: Vec<String> = context.into_iter().chain(given).collect();
            let of = entry.of.map_or(String::new(), |of| format!("::<{}>", of.rust));
            let (declared, given, rust) = (declared.join(", "), given.join(", "), function.rust);
            // Tools for profiling put their own in front of it, and call it by its second name.
            let second = name.starts_with("shmem_").then(|| format!("p{name}"));
            for name in [Some(name), second].into_iter().flatten() {
                writeln!(
                    text,
                    "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn {name}({declared}){result} {{\n    \
                     // SAFETY: C's promise.\n    unsafe {{ crate::{rust}{of}({given}) }}\n}}"
                )
                .expect("a string takes it");
            }
        }
    }
    text
}

/// It takes or gives a `long double`, which Rust cannot.
pub fn is_by_value(entry: &Entry<'_, '_>) -> bool {
    let parameters = entry.function.parameters.iter().map(|parameter| parameter.c);
    let by_value = parameters.chain([entry.function.result]).any(|c| c == "TYPE");
    by_value && entry.of.is_some_and(|of| of.name == "longdouble")
}
