//! Files that a program writes: whole or not at all. The text goes into a file beside the one that is meant, which is then
//! renamed; devices and pipes are written as they are.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where a file's text goes first; `None` for what is there and is no ordinary file.
fn beside(path: &Path) -> io::Result<Option<PathBuf>> {
    // A link stays a link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match fs::metadata(&path) {
        Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if !found.is_file() => return Ok(None),
        _ => {}
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let name = format!(".{}.{}", name.to_string_lossy(), std::process::id());
    Ok(Some(path.with_file_name(name)))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
}

/// Whether a file can be written, said before the work whose result it is to hold.
///
/// # Errors
/// Why not, with its name.
pub fn can_be_written(path: &Path) -> io::Result<()> {
    let attempt = || match beside(path)? {
        Some(part) => fs::write(&part, "").and_then(|()| fs::remove_file(&part)),
        None => Ok(()),
    };
    attempt().map_err(failed(path))
}

/// Writes `text` to the file; what was there before stays if that fails.
///
/// # Errors
/// Why not, with its name.
pub fn write(path: &Path, text: impl AsRef<[u8]>) -> io::Result<()> {
    let attempt = || {
        let Some(part) = beside(path)? else { return fs::write(path, &text) };
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let written = fs::write(&part, &text).and_then(|()| fs::rename(&part, target));
        written.inspect_err(|_| {
            // It may not be there at all; the cause is what counts.
            let _ = fs::remove_file(&part);
        })
    };
    attempt().map_err(failed(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        can_be_written(&path).unwrap();
        assert!(!path.exists());
        write(&path, "one").unwrap();
        write(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_named_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("none/run.json"), folder.path().to_owned()] {
            let text = can_be_written(&path).unwrap_err().to_string();
            assert!(text.contains(&path.display().to_string()), "{text}");
        }
        assert!(write(Path::new("/dev/full"), "text").is_err());
        assert!(Path::new("/dev/full").exists());
    }
}
