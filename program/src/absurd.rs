//! For the tests of programs: every option of a command line, given values that nobody means.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, Command};

/// Values that no number, size, pair or name on a command line can be.
pub const VALUES: [&str; 9] =
    ["nan", "inf", "-1", "-0.5", "1e999", "99999999999999999999", "x", "", "0x10"];

/// An option that takes a value which is none.
fn takes_anything(arg: &Arg) -> bool {
    let kind = arg.get_value_parser().type_id();
    [TypeId::of::<String>(), TypeId::of::<OsString>(), TypeId::of::<PathBuf>()]
        .iter()
        .any(|any| kind == *any)
}

/// The options of `command` and its subcommands that take one of [`VALUES`], each with the line that shows it, and how many
/// lines were tried. Those that name files or hold free text are left out.
pub fn accepted(command: &Command) -> (Vec<String>, usize) {
    let (mut accepted, mut tried) = (Vec::new(), 0);
    walk(command, command, &mut Vec::new(), &mut accepted, &mut tried);
    (accepted, tried)
}

fn walk(
    whole: &Command,
    part: &Command,
    path: &mut Vec<String>,
    accepted: &mut Vec<String>,
    tried: &mut usize,
) {
    for arg in part.get_arguments() {
        let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        if !takes_value || takes_anything(arg) {
            continue;
        }
        for value in VALUES {
            let mut line = vec![whole.get_name().to_owned()];
            line.extend(path.iter().cloned());
            match arg.get_long() {
                Some(long) => line.push(format!("--{long}={value}")),
                // Behind `--` nothing is taken for an option.
                None => line.extend(["--".to_owned(), value.to_owned()]),
            }
            *tried += 1;
            // What is missing besides is complained of only after every value has been read.
            let result = whole.clone().try_get_matches_from(&line);
            let refused = result.is_err_and(|error| {
                use clap::error::ErrorKind::*;
                matches!(error.kind(), ValueValidation | InvalidValue | TooFewValues | NoEquals)
            });
            if !refused {
                accepted.push(line.join(" "));
            }
        }
    }
    for sub in part.get_subcommands() {
        path.push(sub.get_name().to_owned());
        walk(whole, sub, path, accepted, tried);
        path.pop();
    }
}
