//! A strip of a timeline: what each lane of a trace did when. Reads the JSON trace event format, as `MP_TRACE` of libmp,
//! PyTorch and others write it: complete events (`X`) and pairs (`B`, `E`), names of processes and threads (`M`); events of
//! other kinds are not drawn. It is no viewer: Perfetto is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use maud::html;
use serde::Deserialize;

use super::Table;
use super::number::short;
use super::plot::COLOURS;

/// Lanes of a trace within a window of time.
#[derive(Debug, Clone)]
pub struct Timeline {
    /// Title.
    pub title: String,
    /// By process and thread.
    lanes: Vec<Lane>,
    /// What is shown, in microseconds since the first event.
    window: (f64, f64),
}

#[derive(Debug, Clone)]
struct Lane {
    name: String,
    spans: Vec<Span>,
}

/// Begin and end in microseconds since the first event of the trace.
#[derive(Debug, Clone, PartialEq)]
struct Span {
    name: String,
    from: f64,
    to: f64,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    name: String,
    ph: String,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    pid: serde_json::Value,
    #[serde(default)]
    tid: serde_json::Value,
    #[serde(default)]
    args: serde_json::Value,
}

/// A document is the list, or an object that holds it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Document {
    List(Vec<Event>),
    Object {
        #[serde(rename = "traceEvents")]
        events: Vec<Event>,
    },
}

const WIDTH: f64 = 1060.0;
/// Width of the lanes' names, height of a lane.
const MARGIN: f64 = 190.0;
const LANE: f64 = 26.0;
/// The longest operations have a colour each; all others are grey.
const NAMED: usize = COLOURS.len();

impl Timeline {
    /// Reads a trace; `window` in microseconds since its first event, by default all of it.
    ///
    /// # Errors
    /// The file cannot be read, is no trace, or shows nothing in the window.
    pub fn read(path: &Path, window: Option<(f64, f64)>) -> Result<Timeline> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Timeline::parse(&text, &name, window)
            .with_context(|| format!("{} as a trace", path.display()))
    }

    fn parse(text: &str, name: &str, window: Option<(f64, f64)>) -> Result<Timeline> {
        let events = match serde_json::from_str(text)? {
            Document::List(events) | Document::Object { events } => events,
        };
        let (mut names, mut spans) = (BTreeMap::new(), BTreeMap::<_, Vec<Span>>::new());
        let mut open = BTreeMap::<_, Vec<(String, f64)>>::new();
        for event in events {
            // Numbers or texts; numbers in their order.
            let number = |value: &serde_json::Value| {
                (value.as_f64().unwrap_or(0.0) as i64, value.to_string())
            };
            let lane = (number(&event.pid), number(&event.tid));
            match event.ph.as_str() {
                "X" => {
                    let (from, to) = (event.ts, event.ts + event.dur);
                    spans.entry(lane).or_default().push(Span { name: event.name, from, to });
                }
                "B" => open.entry(lane).or_default().push((event.name, event.ts)),
                "E" => {
                    if let Some((name, from)) = open.entry(lane.clone()).or_default().pop() {
                        spans.entry(lane).or_default().push(Span { name, from, to: event.ts });
                    }
                }
                "M" => {
                    let said = event.args["name"].as_str().unwrap_or_default().to_owned();
                    names.insert((event.name, lane.0, lane.1), said);
                }
                _ => {}
            }
        }
        let all = || spans.values().flatten();
        let origin = all().map(|span| span.from).fold(f64::INFINITY, f64::min);
        ensure!(origin.is_finite(), "it has no events with a duration (ph X, or B and E)");
        let end = all().map(|span| span.to).fold(0.0, f64::max) - origin;
        let (from, to) = window.unwrap_or((0.0, end.max(1e-3)));
        ensure!(from < to, "the window {from}:{to} is empty");
        let mut lanes = Vec::new();
        for ((pid, tid), spans) in spans {
            let of = |kind: &str, tid: &(i64, String)| {
                names.get(&(kind.to_owned(), pid.clone(), tid.clone())).cloned()
            };
            // A process is named by an event of any of its threads.
            let process =
                names.iter().find(|((kind, at, _), _)| kind == "process_name" && *at == pid);
            let process = process.map_or(format!("process {}", pid.1), |found| found.1.clone());
            let thread = of("thread_name", &tid).unwrap_or(format!("thread {}", tid.1));
            let mut shown: Vec<Span> = spans
                .into_iter()
                .map(|span| Span { from: span.from - origin, to: span.to - origin, ..span })
                .filter(|span| span.to >= from && span.from <= to)
                .collect();
            shown.sort_by(|a, b| a.from.total_cmp(&b.from));
            if !shown.is_empty() {
                lanes.push(Lane { name: format!("{process}, {thread}"), spans: shown });
            }
        }
        ensure!(
            !lanes.is_empty(),
            "nothing happens between {from} and {to} µs; it lasts {end:.0} µs"
        );
        Ok(Timeline { title: format!("Timeline, {name}"), lanes, window: (from, to) })
    }

    /// Names of operations, the one with the most time first.
    fn operations(&self) -> Vec<&str> {
        let mut times = BTreeMap::<&str, f64>::new();
        for span in self.lanes.iter().flat_map(|lane| &lane.spans) {
            *times.entry(&span.name).or_default() += span.to - span.from;
        }
        let mut names: Vec<(&str, f64)> = times.into_iter().collect();
        names.sort_by(|a, b| b.1.total_cmp(&a.1));
        names.into_iter().map(|name| name.0).collect()
    }

    /// The drawing.
    pub fn svg(&self) -> String {
        let operations = self.operations();
        let colour = |name: &str| match operations.iter().position(|other| *other == name) {
            Some(place) if place < NAMED => {
                let c = COLOURS[place];
                format!("#{:02x}{:02x}{:02x}", c.0, c.1, c.2)
            }
            _ => "#808080".into(),
        };
        let (from, to) = self.window;
        let x =
            |at: f64| MARGIN + (at.clamp(from, to) - from) / (to - from) * (WIDTH - MARGIN - 32.0);
        let bottom = 30.0 + LANE * self.lanes.len() as f64;
        let height = bottom + 64.0;
        let mut shapes = String::new();
        let escaped = |text: &str| html! { (text) }.into_string();
        for (row, lane) in self.lanes.iter().enumerate() {
            let y = 30.0 + LANE * row as f64;
            let name: String = lane.name.chars().take(30).collect();
            _ = writeln!(
                shapes,
                r##"<text x="{}" y="{}" text-anchor="end" font-size="12" font-family="sans-serif" fill="#000000">{}</text>"##,
                MARGIN - 8.0,
                y + 16.0,
                escaped(&name)
            );
            // Spans that would be thinner than a third of a pixel are drawn together with the ones before them.
            let mut drawn_to = f64::NEG_INFINITY;
            for span in &lane.spans {
                let (left, right) = (x(span.from), x(span.to));
                if right - drawn_to < 0.3 {
                    continue;
                }
                drawn_to = right;
                let width = (right - left).max(0.3);
                _ = writeln!(
                    shapes,
                    r#"<rect x="{left:.2}" y="{:.1}" width="{width:.2}" height="{:.1}" fill="{}"><title>{}, {} µs</title></rect>"#,
                    y + 3.0,
                    LANE - 6.0,
                    colour(&span.name),
                    escaped(&span.name),
                    short(span.to - span.from)
                );
            }
        }
        for tick in 0..=5 {
            let at = from + (to - from) * f64::from(tick) / 5.0;
            let x = x(at);
            _ = writeln!(
                shapes,
                r##"<line x1="{x:.1}" y1="26" x2="{x:.1}" y2="{bottom}" stroke="#808080" stroke-opacity="0.35"/><text x="{x:.1}" y="18" text-anchor="middle" font-size="12" font-family="sans-serif" fill="#000000">{} µs</text>"##,
                short(at)
            );
        }
        for (place, name) in operations.iter().take(NAMED).enumerate() {
            let (x, y) =
                (12.0 + 260.0 * (place % 4) as f64, bottom + 16.0 + 22.0 * (place / 4) as f64);
            let name: String = name.chars().take(34).collect();
            _ = writeln!(
                shapes,
                r##"<rect x="{x}" y="{y}" width="14" height="12" fill="{}"/><text x="{}" y="{}" font-size="13" font-family="sans-serif" fill="#000000">{}</text>"##,
                colour(operations[place]),
                x + 20.0,
                y + 11.0,
                escaped(&name)
            );
        }
        format!(
            r#"<svg width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg">{shapes}</svg>"#
        )
    }

    /// Behind the drawing: for each lane and operation how often, how long, and which share of the window.
    pub(super) fn table(&self) -> Table {
        let head = ["lane", "operation", "times", "all, µs", "longest, µs", "of the window, %"];
        let mut rows = Vec::new();
        for lane in &self.lanes {
            let mut found = BTreeMap::<&str, (usize, f64, f64)>::new();
            for span in &lane.spans {
                let entry = found.entry(&span.name).or_default();
                let length = span.to.min(self.window.1) - span.from.max(self.window.0);
                *entry = (entry.0 + 1, entry.1 + length, entry.2.max(span.to - span.from));
            }
            for (name, (count, all, longest)) in found {
                let share = all / (self.window.1 - self.window.0) * 100.0;
                let numbers = [count.to_string(), short(all), short(longest), short(share)];
                let texts = [lane.name.clone(), name.to_owned()];
                rows.push(texts.into_iter().chain(numbers).collect());
            }
        }
        Table { head: head.map(str::to_owned).to_vec(), rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = r#"{"traceEvents": [
        {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "rank 0"}},
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": 2, "args": {"name": "stream"}},
        {"name": "send", "ph": "X", "pid": 0, "tid": 2, "ts": 1000.0, "dur": 10},
        {"name": "wait <recv>", "ph": "B", "pid": 1, "tid": "main", "ts": 1005},
        {"ph": "E", "pid": 1, "tid": "main", "ts": 1045},
        {"name": "arrow", "ph": "s", "pid": 1, "tid": "main", "ts": 1000, "id": 1}]}"#;

    #[test]
    fn complete_events_and_pairs_become_spans_of_named_lanes() {
        let timeline = Timeline::parse(TRACE, "t", None).unwrap();
        assert_eq!(timeline.window, (0.0, 45.0));
        let names: Vec<&str> = timeline.lanes.iter().map(|lane| lane.name.as_str()).collect();
        assert_eq!(names, ["rank 0, stream", "process 1, thread \"main\""]);
        let waits = Span { name: "wait <recv>".into(), from: 5.0, to: 45.0 };
        assert_eq!(timeline.lanes[1].spans, [waits]);
        let svg = timeline.svg();
        assert!(svg.contains("wait &lt;recv&gt;") && svg.contains("rank 0, stream"), "{svg}");
        assert_eq!(timeline.table().rows[1][1..4], ["wait <recv>", "1", "40"]);
    }

    #[test]
    fn a_window_shows_what_happens_in_it() {
        let timeline = Timeline::parse(TRACE, "t", Some((20.0, 40.0))).unwrap();
        assert_eq!(timeline.lanes.len(), 1);
        assert_eq!(timeline.table().rows[0][5], "100");
        let error = Timeline::parse(TRACE, "t", Some((90.0, 99.0))).unwrap_err().to_string();
        assert!(error.contains("90 and 99") && error.contains("45 µs"), "{error}");
    }

    #[test]
    fn a_list_is_a_trace_too_and_anything_else_is_refused() {
        let list = r#"[{"name": "a", "ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]"#;
        assert_eq!(Timeline::parse(list, "t", None).unwrap().lanes.len(), 1);
        assert!(Timeline::parse("{}", "t", None).is_err());
        let error = Timeline::parse("[]", "t", None).unwrap_err().to_string();
        assert!(error.contains("no events"), "{error}");
    }
}
