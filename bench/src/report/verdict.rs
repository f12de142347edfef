//! The verdict: what this library is faster at, by how much and than whom, what it is slower at, in a table that fits a screen; the same
//! in ten lines and a picture for the report. All of it comes from the samples of the figures; nothing is weighed or left out by hand.

use mp_program::drawing::{BLUE, Drawing, GREY, INK, ORANGE, PALE, Side};

use super::number::short;
use super::{Table, at, place, places};
use crate::result::{Figure, Results, Role, Series};
use crate::spread::Ratio;

/// Rows of a report's summary at most.
const LINES: usize = 10;
/// Of them at most so many for forms of this library alone.
const FORMS: usize = 1;

/// The fastest of ours at one x beside another player: how many times as fast it is.
struct Beside {
    x: f64,
    times: f64,
    /// What the 95 % interval of the ratio says.
    sign: Sign,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Faster,
    Even,
    Slower,
}

/// Our fastest form at each x beside one player of a figure.
struct Row<'a> {
    figure: &'a Figure,
    other: &'a str,
    points: Vec<Beside>,
}

/// The best of some series at `x`: the one with the best median.
fn best<'a>(figure: &Figure, series: &[&'a Series], x: f64) -> Option<&'a Series> {
    let median = |series: &&&Series| {
        let median = at(series, x).and_then(|point| point.spread()).map(|spread| spread.median);
        median.map(|median| if figure.less_is_better { median } else { -median })
    };
    let there = series.iter().filter(|series| median(series).is_some());
    let by = |a: &&&Series, b: &&&Series| {
        f64::total_cmp(&median(a).unwrap_or(0.0), &median(b).unwrap_or(0.0))
    };
    there.min_by(by).copied()
}

/// The best of `ours` beside the best of `others` at each x at which there are both.
fn beside<'a>(
    figure: &'a Figure,
    ours: &[&Series],
    others: &[&Series],
    name: &'a str,
) -> Option<Row<'a>> {
    let point = |x: f64| {
        let (our, other) = (best(figure, ours, x)?, best(figure, others, x)?);
        let (our, other) = (&at(our, x)?.samples, &at(other, x)?.samples);
        // Times as fast: of times theirs over ours, of rates ours over theirs.
        let ratio = match figure.less_is_better {
            true => Ratio::of(other, our),
            false => Ratio::of(our, other),
        }?;
        let sign = match () {
            () if ratio.low > 1.0 => Sign::Faster,
            () if ratio.high < 1.0 => Sign::Slower,
            () => Sign::Even,
        };
        Some(Beside { x, times: ratio.value, sign })
    };
    let points: Vec<Beside> = places(figure).into_iter().filter_map(point).collect();
    (!points.is_empty()).then_some(Row { figure, other: name, points })
}

fn of_role(figure: &Figure, role: Role) -> Vec<&Series> {
    figure.series.iter().filter(|series| series.role == role).collect()
}

/// A row for each other library of a figure.
fn rows(figure: &Figure) -> Vec<Row<'_>> {
    let ours = of_role(figure, Role::Ours);
    let peers = of_role(figure, Role::Peer);
    peers.iter().filter_map(|peer| beside(figure, &ours, &[peer], &peer.name)).collect()
}

impl Row<'_> {
    /// Factors and places of the points with this sign, neighbours joined: "1.9–8.1×: 1 KiB–64 KiB".
    fn cell(&self, sign: Sign) -> String {
        let mut runs: Vec<Vec<&Beside>> = Vec::new();
        let mut last = None;
        for (number, point) in self.points.iter().enumerate().filter(|(_, one)| one.sign == sign) {
            match (last.is_some_and(|last: usize| last + 1 == number), runs.last_mut()) {
                (true, Some(run)) => run.push(point),
                _ => runs.push(vec![point]),
            }
            last = Some(number);
        }
        let all = runs.iter().flatten().map(|point| point.times);
        let (least, most) = all.fold((f64::INFINITY, 0.0_f64), |(a, b), t| (a.min(t), b.max(t)));
        let range = |run: &Vec<&Beside>| match (&run[0], &run[run.len() - 1]) {
            (from, to) if from.x == to.x => place(self.figure, from.x),
            (from, to) => format!("{}–{}", place(self.figure, from.x), place(self.figure, to.x)),
        };
        if runs.is_empty() {
            return String::new();
        }
        let factor = match times(least) == times(most) {
            true => format!("{}×", times(most)),
            false => format!("{}–{}×", times(least), times(most)),
        };
        if self.points.len() == 1 {
            return factor;
        }
        let places = runs.iter().map(range).collect::<Vec<_>>().join(", ");
        // Sizes in bytes explain themselves.
        let of = if self.figure.x.unit == "B" { "" } else { &self.figure.x.label };
        format!("{factor}: {places} {of}").trim_end().to_owned()
    }

    /// Names and cells.
    fn line(&self) -> Vec<String> {
        let cells = [Sign::Faster, Sign::Even, Sign::Slower].map(|sign| self.cell(sign));
        [self.figure.title.clone(), self.other.to_owned()].into_iter().chain(cells).collect()
    }
}

/// A factor with as many digits as it deserves.
fn times(value: f64) -> String {
    match value {
        9.95.. => format!("{value:.0}"),
        0.9..1.1 => format!("{value:.2}"),
        _ => format!("{value:.1}"),
    }
}

const HEAD: [&str; 5] = ["what", "beside", "faster", "even", "slower"];

/// Columns of a screen.
const SCREEN: u16 = 160;

/// The table of a run for a terminal, and a line that counts; nothing without other libraries.
pub fn verdict(run: &Results) -> String {
    let rows: Vec<Row<'_>> = run.figures.iter().flat_map(rows).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut drawn = comfy_table::Table::new();
    drawn
        .load_preset(comfy_table::presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(comfy_table::ContentArrangement::Dynamic)
        .set_width(SCREEN)
        .set_header(HEAD);
    let mut before = "";
    for row in &rows {
        let mut line = row.line();
        if row.figure.title == before {
            line[0].clear();
        }
        before = &row.figure.title;
        drawn.add_row(line);
    }
    let points = || rows.iter().flat_map(|row| &row.points);
    let count = |sign| points().filter(|point| point.sign == sign).count();
    let (faster, even, slower) = (count(Sign::Faster), count(Sign::Even), count(Sign::Slower));
    format!(
        "Verdict\n{drawn}\nOf {} comparisons {faster} are faster, {even} even, {slower} slower. {EXPLAINED}\n",
        points().count()
    )
}

/// What the columns mean.
const EXPLAINED: &str = "Times as fast as the other, the fastest form of this library at each size; even: the 95 % interval holds 1.";

/// The rows of a report's summary: each figure once, beside the fastest other library at each size. Where the same is measured in several
/// runs the first counts; without other libraries the forms of this one are compared, the last with the first, if they differ. And the
/// names of what there is no room for.
fn summary(runs: &[Results]) -> (Vec<Row<'_>>, Vec<&str>) {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let measured = |figure: &&Figure| places(figure).len() > 1;
    for figure in runs.iter().flat_map(|run| &run.figures).filter(measured) {
        let (ours, peers) = (of_role(figure, Role::Ours), of_role(figure, Role::Peer));
        let seen = rows.iter().any(|row| row.figure.title == figure.title);
        if seen || peers.is_empty() {
            continue;
        }
        let name = if peers.len() == 1 { peers[0].name.as_str() } else { "the fastest of others" };
        rows.extend(beside(figure, &ours, &peers, name));
    }
    let alone = runs.iter().rev().flat_map(|run| run.figures.iter().rev()).filter(measured);
    let mut forms: Vec<Row<'_>> = Vec::new();
    for figure in alone.filter(|figure| figure.less_is_better) {
        let ours = of_role(figure, Role::Ours);
        if let ([first, .., last], true) = (&ours[..], ours.len() == figure.series.len()) {
            let differ = |row: &Row<'_>| row.points.iter().any(|point| point.sign != Sign::Even);
            forms.extend(beside(figure, &[last], &[first], &first.name).filter(differ));
        }
    }
    // However many others there are, there is room for these.
    let more_forms = forms.split_off(FORMS.min(forms.len()));
    let mut left_out = rows.split_off((LINES - forms.len()).min(rows.len()));
    left_out.extend(more_forms);
    rows.extend(forms);
    (rows, left_out.iter().map(|row| row.figure.title.as_str()).collect())
}

/// The summary as a table, what its columns mean, and what it has no room for.
pub(super) fn table(runs: &[Results]) -> Option<(Table, String)> {
    let (rows, left_out) = summary(runs);
    let rows: Vec<Vec<String>> = rows.iter().map(Row::line).collect();
    let mut words = EXPLAINED.to_owned();
    if !left_out.is_empty() {
        words += &format!(" Further down: {}.", left_out.join("; "));
    }
    (!rows.is_empty()).then(|| (Table { head: HEAD.map(str::to_owned).into(), rows }, words))
}

/// What one figure says beside each other library, in a line; empty without one.
pub(super) fn sentence(figure: &Figure) -> String {
    let one = |row: &Row<'_>| {
        let cells = [("faster", Sign::Faster), ("even", Sign::Even), ("slower", Sign::Slower)];
        let said = cells.map(|(word, sign)| (word, row.cell(sign)));
        let said = said.into_iter().filter(|(_, cell)| !cell.is_empty());
        let said: Vec<_> = said.map(|(word, cell)| format!("{word} {cell}")).collect();
        format!("beside {}: {}", row.other, said.join("; "))
    };
    rows(figure).iter().map(one).collect::<Vec<_>>().join(". ")
}

/// The summary as a drawing: a line for each row, a dot for each size, on a logarithmic scale with 1 marked.
pub fn picture(runs: &[Results]) -> Option<String> {
    const LEFT: f64 = 330.0;
    const WIDTH: f64 = 560.0;
    const LINE: f64 = 34.0;
    const TOP: f64 = 46.0;
    let (rows, _) = summary(runs);
    let all = || rows.iter().flat_map(|row| &row.points).map(|point| point.times.log2());
    let (low, high) = (all().fold(-0.5, f64::min) - 0.2, all().fold(0.5, f64::max) + 0.2);
    if rows.is_empty() {
        return None;
    }
    let x = |times: f64| LEFT + WIDTH * (times.log2() - low) / (high - low);
    let bottom = TOP + LINE * rows.len() as f64;
    let mut drawing = Drawing::new(LEFT + WIDTH + 20.0, bottom + 26.0);
    let title = "times as fast as the other; a dot for each size, pale: small, dark: large";
    drawing.text((LEFT, 18.0), Side::Behind, 13, INK, title);
    for power in (low.ceil() as i32)..=(high.floor() as i32) {
        let (times, colour) = (f64::from(power).exp2(), if power == 0 { INK } else { PALE });
        drawing.line((x(times), TOP - 14.0), (x(times), bottom), colour);
        let text = format!("{}×", short(times));
        drawing.text((x(times), bottom + 16.0), Side::Around, 13, INK, &text);
    }
    for (number, row) in rows.iter().enumerate() {
        let y = TOP + LINE * number as f64 + 4.0;
        let names = LEFT - 12.0;
        drawing.text((names, y), Side::Before, 13, INK, &row.figure.title);
        drawing.text((names, y + 13.0), Side::Before, 11, GREY, &format!("beside {}", row.other));
        let last = (row.points.len() - 1).max(1) as f64;
        for (place, point) in row.points.iter().enumerate() {
            let colour = if point.times >= 1.0 { BLUE } else { ORANGE };
            let opacity = 0.35 + 0.65 * place as f64 / last;
            drawing.dot((x(point.times), y - 1.0), 5.0, colour, opacity);
        }
    }
    Some(drawing.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Axis, Plot, Point};

    /// Ours in two forms, beside a peer that is half as fast with small messages and twice as fast with large ones.
    fn run(less_is_better: bool) -> Results {
        let series = |name: &str, role, values: [f64; 4]| Series {
            name: name.into(),
            role,
            points: [8.0, 64.0, 1024.0, 65536.0]
                .into_iter()
                .zip(values)
                .map(|(x, value)| Point {
                    x,
                    samples: vec![value, value * 1.02, value * 1.04],
                    p99: None,
                })
                .collect(),
        };
        let mut run = Results::begin(Vec::new());
        run.figures.push(Figure {
            title: "Latency".into(),
            plot: Plot::Lines,
            x: Axis::log("message", "B"),
            y: Axis::log("one way", "µs"),
            less_is_better,
            series: vec![
                series("slow form", Role::Ours, [9.0, 9.0, 1.0, 9.0]),
                series("fast form", Role::Ours, [1.0, 1.0, 9.0, 4.0]),
                series("A", Role::Peer, [2.0, 4.0, 1.01, 2.0]),
                series("floor", Role::Floor, [0.1; 4]),
            ],
        });
        run
    }

    #[test]
    fn the_verdict_says_what_is_faster_even_and_slower_than_whom_and_where() {
        let text = verdict(&run(true));
        let row = text.lines().find(|line| line.contains("Latency")).unwrap();
        let cells: Vec<&str> = row.split(['│', '┆']).map(str::trim).collect();
        assert_eq!(
            cells[1..6],
            ["Latency", "A", "2.0–4.0×: 8 B–64 B", "1.01×: 1 KiB", "0.5×: 64 KiB"]
        );
        assert!(text.contains("Of 4 comparisons 2 are faster, 1 even, 1 slower."), "{text}");
        // Of rates more is better: the same numbers the other way round, the best form at each size.
        let text = verdict(&run(false));
        assert!(text.contains("2.2–8.9×") && !text.contains("0.5×"), "{text}");
    }

    #[test]
    fn the_verdict_of_committed_results_fits_a_screen() {
        for name in ["host-compare", "two-gpus-compare"] {
            let path = format!("{}/../docs/results/{name}.json", env!("CARGO_MANIFEST_DIR"));
            let text = verdict(&Results::read(path.as_ref()).unwrap());
            let width = text
                .lines()
                .filter(|line| line.contains('│'))
                .map(|line| line.chars().count())
                .max();
            assert!(text.lines().count() <= 50 && width.unwrap() <= usize::from(SCREEN), "{text}");
        }
    }

    #[test]
    fn nobody_to_compare_with_is_no_verdict() {
        let mut run = run(true);
        run.figures[0].series.retain(|series| series.role != Role::Peer);
        assert_eq!(verdict(&run), "");
        assert_eq!(sentence(&run.figures[0]), "");
    }

    #[test]
    fn the_summary_has_room_for_forms_of_the_library_however_many_others_there_are() {
        let mut alone = run(true);
        alone.figures[0].title = "Alone".into();
        alone.figures[0].series.retain(|series| series.role == Role::Ours);
        let other = |number| {
            let mut other = run(true);
            other.figures[0].title = format!("Latency {number}");
            other
        };
        let runs: Vec<Results> = (0..12).map(other).chain([alone]).collect();
        let (Table { rows, .. }, words) = table(&runs).unwrap();
        assert!(words.ends_with(" Further down: Latency 9; Latency 10; Latency 11."), "{words}");
        assert_eq!(rows.len(), LINES);
        assert_eq!(rows[LINES - 1][..2], ["Alone", "slow form"]);
        assert_eq!(rows[LINES - 2][0], "Latency 8");
    }

    #[test]
    fn the_summary_has_each_figure_once_and_a_dot_for_each_size() {
        let runs = [run(true), run(true)];
        let (table, words) = table(&runs).unwrap();
        assert_eq!(words, EXPLAINED);
        assert_eq!(table.rows.len(), 1);
        assert_eq!(table.rows[0][1], "A");
        let picture = picture(&runs).unwrap();
        assert_eq!(picture.matches("<circle").count(), 4);
        assert_eq!(picture.matches(ORANGE).count(), 1, "one is slower");
    }
}
