//! The file: the parts of all ranks as one document in the JSON trace event format that `chrome://tracing`, Perfetto and
//! Speedscope read. A rank is a process there and a lane a thread; times are microseconds of rank 0's clock since the first
//! event.
//!
//! Format: "Trace Event Format", <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::record::{Event, Kind, Part};

/// What was written.
///
/// ```
/// use libmp::Trace;
/// use libmp::trace::{self, Offset};
///
/// // Ranks that found each other without a world: each records, and one writes what the others send it.
/// let traces = [Trace::detached(0, "node1", 1000), Trace::detached(1, "node2", 1000)];
/// traces[1].set_offset(Offset { ns: -250, within_ns: 40 }); // its clock is ahead
/// for trace in &traces {
///     drop(trace.span("host", "smooth"));
/// }
/// let parts: Vec<trace::Part> = traces.iter().filter_map(|trace| trace.part()).collect();
/// let file = std::env::temp_dir().join(format!("run-{}.json", std::process::id()));
/// let written = trace::write(&file, &parts)?;
/// assert_eq!((written.ranks, written.events, written.lost), (2, 2, 0));
/// # std::fs::remove_file(file).unwrap();
/// # Ok::<(), libmp::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Ranks in it.
    pub ranks: usize,
    /// Events in it.
    pub events: u64,
    /// Events for which a rank had no room (`MP_TRACE_EVENTS`).
    pub lost: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
}

/// One entry of `traceEvents`; what is `None` is not written.
#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    ph: &'a str,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// Of what belongs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// An arrow ends at the enclosing span; an instant is of its thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    args: BTreeMap<&'a str, serde_json::Value>,
}

impl<'a> Entry<'a> {
    fn new(name: &'a str, ph: &'a str, pid: u32, tid: u32) -> Entry<'a> {
        let args = BTreeMap::new();
        Entry {
            name,
            ph,
            pid,
            tid,
            cat: None,
            ts: None,
            dur: None,
            id: None,
            bp: None,
            s: None,
            args,
        }
    }

    fn arg(mut self, key: &'a str, value: impl Into<serde_json::Value>) -> Entry<'a> {
        self.args.insert(key, value.into());
        self
    }
}

/// Writes the document.
pub(super) fn write(out: &mut impl Write, parts: &[Part]) -> io::Result<Summary> {
    let origin = parts.iter().flat_map(|part| part.events.iter().map(|e| at(part, e.start))).min();
    let origin = origin.unwrap_or_default();
    let mut list = List { out: Counted { out, bytes: 0 }, first: true };
    list.out.write_all(b"{\"traceEvents\":[")?;
    let mut summary = Summary { ranks: parts.len(), ..Summary::default() };
    for part in parts {
        summary.lost += part.lost;
        summary.events += part.events.len() as u64;
        title(&mut list, part)?;
        for (number, event) in part.events.iter().enumerate() {
            entries(&mut list, part, event, number, origin)?;
        }
    }
    let about = serde_json::json!({
        "origin_ns": origin.to_string(),
        "clock": "CLOCK_MONOTONIC of rank 0's host",
        "ranks": parts.iter().map(|part| serde_json::json!({
            "rank": part.rank,
            "host": part.host,
            "pid": part.pid,
            "clock_offset_ns": part.offset.ns,
            "clock_within_ns": part.offset.within_ns,
            "events_lost": part.lost,
        })).collect::<Vec<_>>(),
    });
    write!(list.out, "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{about}}}\n")?;
    list.out.flush()?;
    summary.bytes = list.out.bytes;
    Ok(summary)
}

fn at(part: &Part, ns: u64) -> i128 {
    i128::from(ns) + i128::from(part.offset.ns)
}

fn title<W: Write>(list: &mut List<W>, part: &Part) -> io::Result<()> {
    let rank = part.rank;
    let entry = |name, tid| Entry::new(name, "M", rank, tid);
    let name = format!("rank {rank} on {}", part.host);
    list.push(&entry("process_name", 0).arg("name", name))?;
    list.push(&entry("process_sort_index", 0).arg("sort_index", rank))?;
    for (lane, &name) in (0u32..).zip(&part.lanes) {
        list.push(&entry("thread_name", lane).arg("name", part.string(name)))?;
        list.push(&entry("thread_sort_index", lane).arg("sort_index", lane))?;
    }
    Ok(())
}

fn entries<W: Write>(
    list: &mut List<W>,
    part: &Part,
    event: &Event,
    number: usize,
    origin: i128,
) -> io::Result<()> {
    let microseconds = |ns: i128| ns as f64 / 1000.0;
    let start = at(part, event.start) - origin;
    let entry = |ph| Entry {
        cat: Some(part.string(event.category)),
        ts: Some(microseconds(start)),
        args: event
            .args
            .iter()
            .map(|&(key, value)| (part.string(key), serde_json::Value::from(value)))
            .collect(),
        ..Entry::new(part.string(event.name), ph, part.rank, event.lane.0)
    };
    match event.kind {
        Kind::Span(ns) => list.push(&Entry { dur: Some(microseconds(ns.into())), ..entry("X") }),
        Kind::Flight(ns) => {
            let id = Some(format!("{}.{number}", part.rank));
            list.push(&Entry { id: id.clone(), ..entry("b") })?;
            let end = Some(microseconds(start + i128::from(ns)));
            list.push(&Entry { id, ts: end, args: BTreeMap::new(), ..entry("e") })
        }
        Kind::Instant => list.push(&Entry { s: Some("t"), ..entry("i") }),
        Kind::Counter(value) => list.push(&entry("C").arg("value", value)),
        Kind::Leaves(id) => list.push(&Entry { id: Some(format!("{id:#x}")), ..entry("s") }),
        Kind::Arrives(id) => {
            list.push(&Entry { id: Some(format!("{id:#x}")), bp: Some("e"), ..entry("f") })
        }
    }
}

/// The array, with commas between its entries.
struct List<W> {
    out: W,
    first: bool,
}

impl<W: Write> List<W> {
    fn push(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        self.out.write_all(if std::mem::take(&mut self.first) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut self.out, entry)?;
        Ok(())
    }
}

/// Counts what passes.
struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::clock::Offset;
    use crate::trace::record::Recorder;

    #[test]
    fn two_ranks_are_on_one_clock() {
        let [zero, one] = [0, 1].map(|rank| Recorder::new(rank, "n".into(), 100));
        one.set_offset(Offset { ns: -5000, within_ns: 10 });
        let (a, b) = (zero.lane("main".into()), one.lane("main".into()));
        zero.push(a, "host", "send \"x\"".into(), 10_000, Kind::Span(1500), &[("bytes", 8)]);
        zero.push(a, "host", "send".into(), 10_500, Kind::Leaves(7), &[]);
        one.push(b, "host", "recv".into(), 16_250, Kind::Flight(3000), &[]);
        one.push(b, "host", "recv".into(), 17_000, Kind::Arrives(7), &[]);
        one.push(b, "cpu", "load".into(), 17_000, Kind::Counter(0.5), &[]);
        let mut file = Vec::new();
        let summary = write(&mut file, &[zero.part(), one.part()]).unwrap();
        assert_eq!((summary.ranks, summary.events, summary.lost), (2, 5, 0));
        assert_eq!(summary.bytes, file.len() as u64);
        let document: serde_json::Value = serde_json::from_slice(&file).unwrap();
        let events = document["traceEvents"].as_array().unwrap();
        let of = |ph: &str| events.iter().find(|event| event["ph"] == ph).unwrap();
        assert_eq!((&of("X")["ts"], &of("X")["dur"]), (&0.0.into(), &1.5.into()));
        assert_eq!(of("X")["name"], "send \"x\"");
        assert_eq!(of("X")["args"]["bytes"], 8);
        assert_eq!((&of("b")["ts"], &of("b")["pid"]), (&1.25.into(), &1.into()));
        assert_eq!(of("e")["ts"], 4.25);
        assert_eq!(of("b")["id"], of("e")["id"]);
        assert_eq!(of("s")["id"], of("f")["id"]);
        assert_eq!(of("C")["args"]["value"], 0.5);
        assert_eq!(document["otherData"]["ranks"][1]["clock_offset_ns"], -5000);
        let names: Vec<_> = events.iter().filter(|event| event["name"] == "process_name").collect();
        assert_eq!(names[1]["args"]["name"], "rank 1 on n");
    }

    #[test]
    fn no_ranks_are_an_empty_document() {
        let mut file = Vec::new();
        write(&mut file, &[]).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&file).unwrap();
        assert_eq!(document["traceEvents"].as_array().map(Vec::len), Some(0));
    }
}
