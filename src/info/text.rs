//! The report as text for people.

use std::fmt::Write;

use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};

use super::{Gpu, Gpus, Report};

/// Writes the report.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(report, &mut out);
    out
}

fn write(report: &Report, out: &mut String) -> std::fmt::Result {
    let build = &report.build;
    writeln!(out, "mp {} (revision {})", build.version, build.revision)?;
    match build.nvcc {
        Some(nvcc) => {
            writeln!(out, "GPU code: nvcc {nvcc}, for {}", build.architectures.join(" "))?
        }
        None => writeln!(out, "GPU code: none, {}", mp_kernels::NotBuilt)?,
    }
    let machine = &report.machine;
    writeln!(
        out,
        "\nMachine {}: {} cores of {}, {:.1} GiB, Linux {}",
        machine.host,
        machine.cores,
        machine.processor,
        gib(machine.memory),
        machine.kernel
    )?;
    gpus(&report.gpus, out)?;
    writeln!(out, "\nRDMA devices")?;
    if let Some(missing) = &report.rdma.missing {
        writeln!(out, "  none: {missing}")?;
    }
    for device in &report.rdma.devices {
        writeln!(out, "  {} ({})", device.name, device.error.as_deref().unwrap_or(&device.guid))?;
        for port in &device.ports {
            let state = if port.active { "active" } else { "down" };
            let gid = port.gid.as_deref().unwrap_or("no GID");
            writeln!(
                out,
                "    port {}: {state}, {}, MTU {}, {gid}",
                port.number, port.link_layer, port.mtu
            )?;
        }
        for line in &device.kernel_queues {
            writeln!(out, "    {line}")?;
        }
    }
    let environment = &report.environment;
    writeln!(out, "\nStarted by {}", environment.started_by)?;
    for variable in &environment.variables {
        writeln!(out, "  {}={}", variable.name, variable.value)?;
    }
    for program in &environment.programs {
        match &program.path {
            Some(path) => writeln!(out, "  {:<16} {}", program.name, path.display())?,
            None => writeln!(out, "  {:<16} not found", program.name)?,
        }
    }
    writeln!(out, "\nPaths")?;
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header(["from", "to", "path", "by", "why not faster"]);
    for route in &report.paths {
        let why = route.not_faster.as_deref().unwrap_or("");
        table.add_row([&route.from, &route.to, route.path, &route.by, why]);
    }
    writeln!(out, "{table}\n")?;
    out.write_str(&report.diagnosis.render())
}

fn gpus(gpus: &Gpus, out: &mut String) -> std::fmt::Result {
    match &gpus.driver {
        Some(version) => writeln!(out, "\nCUDA driver {version}")?,
        None => writeln!(out, "\nCUDA driver: none")?,
    }
    if let Some(missing) = &gpus.missing {
        writeln!(out, "  {missing}")?;
    }
    for gpu in &gpus.devices {
        writeln!(
            out,
            "  cuda:{} {}, {:.0} GiB, {} SMs, compute capability {}, PCI {}",
            gpu.ordinal,
            gpu.name,
            gib(gpu.capabilities.memory),
            gpu.capabilities.multiprocessors,
            gpu.capabilities.compute_capability(),
            gpu.capabilities.pci
        )?;
        for (name, has) in abilities(gpu) {
            writeln!(out, "    {:<52} {}", name, if has { "yes" } else { "no" })?;
        }
        for check in &gpu.checks {
            writeln!(
                out,
                "    tried: {:<45} {}",
                check.name,
                check.error.as_deref().unwrap_or("works")
            )?;
        }
    }
    if gpus.links.is_empty() {
        return Ok(());
    }
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    let column = |gpu: &Gpu| format!("to cuda:{}", gpu.ordinal);
    table.set_header(std::iter::once(String::new()).chain(gpus.devices.iter().map(column)));
    for from in &gpus.devices {
        let cell = |to: &Gpu| match gpus.link(from.ordinal, to.ordinal) {
            _ if from.ordinal == to.ordinal => "-".to_owned(),
            Some(link) if link.access => {
                format!(
                    "access, rank {}, {}",
                    link.rank,
                    if link.atomics { "atomics" } else { "no atomics" }
                )
            }
            _ => "no access".to_owned(),
        };
        table.add_row(
            std::iter::once(format!("cuda:{}", from.ordinal)).chain(gpus.devices.iter().map(cell)),
        );
    }
    writeln!(out, "{table}")
}

fn abilities(gpu: &Gpu) -> [(&'static str, bool); 13] {
    let can = &gpu.capabilities;
    [
        ("64-bit stream memory operations", can.stream_mem_ops_64),
        ("WAIT_VALUE_NOR", can.wait_value_nor),
        ("FLUSH_REMOTE_WRITES", can.flush_remote_writes),
        ("GPUDirect RDMA", can.gpudirect_rdma),
        ("dma-buf export", can.dma_buf),
        ("POSIX file descriptor handles", can.posix_fd_handles),
        ("fabric handles", can.fabric_handles),
        ("registration of host memory", can.host_register),
        ("pageable access (HMM)", can.pageable_access),
        ("native atomics with the CPU", can.host_atomics),
        ("cooperative launch", can.cooperative_launch),
        ("MPS", can.mps),
        ("GPU code in this build", mp_kernels::fatbin().is_ok()),
    ]
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}
