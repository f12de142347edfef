//! Makes the entry points, and the headers, of the tables of functions. The headers are committed, in `include`; a test compares.

#[path = "api/device.rs"]
mod device;
#[path = "api/entries.rs"]
mod entries;
#[path = "api/header.rs"]
mod header;
#[path = "api/table.rs"]
mod table;

use std::path::Path;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=api");
    println!("cargo::rerun-if-changed=src/long_double.c");
    cc::Build::new()
        .file("src/long_double.c")
        .std("c99")
        .warnings_into_errors(true)
        .compile("mp_shmem_c");
    let text = std::fs::read_to_string("api/functions.txt")?;
    let table = table::Table::read(&text, &[]);
    let on_device = std::fs::read_to_string("api/device.txt")?;
    let on_device = table::Table::read(&on_device, &table.types);
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    let extensions = std::fs::read_to_string("api/extensions.txt")?;
    let extensions = table::Table::read(&extensions, &table.types);
    let entries = [&table, &on_device, &extensions].map(entries::entries).concat();
    std::fs::write(Path::new(&out).join("entries.rs"), entries)?;
    std::fs::write(Path::new(&out).join("shmemg.h"), device::device_header(&on_device))?;
    std::fs::write(Path::new(&out).join("shmem.h"), header::header(&table))?;
    std::fs::write(Path::new(&out).join("shmemx.h"), header::extensions_header(&extensions))?;
    std::fs::write(Path::new(&out).join("pshmem.h"), header::profiling_header(&table))
}
