//! The report as one page: tables, and plots drawn as SVG. Nothing is loaded from elsewhere, and there is no script.

use crate::histogram::Percentiles;
use crate::report::{Moment, Report};
use std::fmt::Write as _;

const STYLE: &str = include_str!("report.css");

/// Size of a plot in units of its own coordinates.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 34.0;

/// One line of a plot.
struct Line {
    name: &'static str,
    points: Vec<(f64, f64)>,
}

struct Plot {
    title: &'static str,
    x_label: &'static str,
    y_label: &'static str,
    lines: Vec<Line>,
    /// Part of the x-axis that is shaded: the measurement.
    shaded: Option<(f64, f64)>,
    /// Percentages of packets on a logarithmic axis, from 100 % down.
    log_share: bool,
}

/// A whole HTML page.
pub fn page(report: &Report) -> String {
    let mut html = String::new();
    // A string takes whatever is written.
    let _ = write_page(&mut html, report);
    html
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

fn write_page(html: &mut String, report: &Report) -> std::fmt::Result {
    let asked = &report.asked;
    let scenario = format!("{:?}", asked.scenario).to_lowercase();
    let size = format!(
        "{} room{}, {} publisher{} each, {} joins",
        asked.rooms,
        if asked.rooms == 1 { "" } else { "s" },
        asked.publishers,
        if asked.publishers == 1 { "" } else { "s" },
        report.joins.asked
    );
    write!(
        html,
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Load: {scenario}</title>\n<style>{STYLE}</style>\n\
         <main><header><h1>rondo load {scenario}</h1><p>{size}; measured for {:.1} s; {}</p></header>\n",
        report.hold_s,
        escaped(&asked.url)
    )?;
    for warning in &report.warnings {
        writeln!(html, "<p class=\"warning\">{}</p>", escaped(warning))?;
    }
    write_figures(html, report)?;
    html.push_str("<div class=\"plots\">\n");
    for plot in plots(report) {
        write_plot(html, &plot)?;
    }
    html.push_str("</div>\n");
    write_tables(html, report)?;
    writeln!(
        html,
        "<footer>Latency is from before the publisher encrypts to the viewer's kernel, by one clock. Shaded: the measurement. \
         Version {}, seed {}.</footer></main></html>",
        report.version, asked.seed
    )
}

fn write_figures(html: &mut String, report: &Report) -> std::fmt::Result {
    let (joins, media) = (&report.joins, &report.media);
    let mut figures = vec![
        (format!("{}/{}", joins.connected, joins.asked), "connected"),
        (format!("{:.3} %", media.loss_pct), "lost"),
        (format!("{} ms", shown(media.latency.p50_ms, 2)), "latency, median"),
        (format!("{} ms", shown(media.latency.p99_ms, 2)), "latency, p99"),
        (format!("{:.0}", media.packets_per_s), "packets/s received"),
        (format!("{:.0} %", report.tool.cores_pct), "of a core, this tool"),
    ];
    if let Some(server) = &report.server {
        figures.push((format!("{:.0} %", server.cores_pct), "of a core, the server"));
        figures.push((format!("{} µs", shown(server.us_per_packet, 2)), "server's CPU a packet"));
    }
    html.push_str("<dl>");
    for (value, name) in figures {
        write!(html, "<div><dt>{name}</dt><dd>{value}</dd></div>")?;
    }
    html.push_str("</dl>\n");
    Ok(())
}

fn plots(report: &Report) -> Vec<Plot> {
    let moments = &report.timeline;
    let line = |name, of: &dyn Fn(&Moment) -> Option<f64>| Line {
        name,
        points: moments.iter().filter_map(|moment| Some((moment.at_s, of(moment)?))).collect(),
    };
    let mut held = moments.iter().filter(|moment| moment.held).map(|moment| moment.at_s);
    let shaded = held.next().map(|first| (first - 1.0, held.next_back().unwrap_or(first)));
    let over_time = |title, y_label, lines| Plot { title, x_label: "s", y_label, lines, shaded, log_share: false };
    let tail = report.latency_tail.iter().map(|(ms, share)| (*ms, share * 100.0)).collect();
    vec![
        over_time("Latency", "ms", vec![line("p99", &|m| m.p99_ms), line("median", &|m| m.p50_ms)]),
        over_time(
            "Packets",
            "a second",
            vec![line("received", &|m| Some(m.received_per_s)), line("sent", &|m| Some(m.sent_per_s))],
        ),
        over_time(
            "Clients",
            "",
            vec![line("accepted", &|m| Some(m.accepted as f64)), line("connected", &|m| Some(m.connected as f64))],
        ),
        over_time("CPU", "% of a core", vec![line("tool", &|m| Some(m.tool_pct)), line("server", &|m| m.server_pct)]),
        Plot {
            title: "Packets that took longer",
            x_label: "ms",
            y_label: "%",
            lines: vec![Line { name: "share of packets", points: tail }],
            shaded: None,
            log_share: true,
        },
    ]
}

/// The smallest 1, 2 or 5 times a power of ten that is at least `value`.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|top| *top >= value * 0.999).unwrap_or(10.0 * power)
}

/// A number without digits that say nothing.
fn short(value: f64) -> String {
    match value {
        v if v >= 10_000.0 => format!("{:.0}k", v / 1_000.0),
        v if v >= 10.0 || v == v.trunc() => format!("{v:.0}"),
        v if v >= 0.1 => format!("{v:.1}"),
        v => format!("{v}"),
    }
}

fn write_plot(html: &mut String, plot: &Plot) -> std::fmt::Result {
    let lines: Vec<&Line> = plot.lines.iter().filter(|line| !line.points.is_empty()).collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let x_max = round_up_axis(points().map(|(x, _)| *x).fold(0.0, f64::max));
    let y_max = if plot.log_share { 100.0 } else { round_up_axis(points().map(|(_, y)| *y).fold(0.0, f64::max)) };
    let y_min = if plot.log_share { points().map(|(_, y)| *y).fold(1.0, f64::min).max(1e-4) } else { 0.0 };
    let x = |value: f64| LEFT + value / x_max * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| {
        let share = if plot.log_share { (value.max(y_min) / y_min).ln() / (y_max / y_min).ln() } else { value / y_max };
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    };

    write!(html, "<figure><figcaption>{}", plot.title)?;
    for (n, line) in lines.iter().enumerate() {
        write!(html, " <span class=\"key l{n}\">{}</span>", line.name)?;
    }
    if lines.is_empty() {
        return html.write_str("</figcaption><p>Nothing was measured.</p></figure>\n");
    }
    writeln!(html, "</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">", plot.title)?;
    if let Some((from, to)) = plot.shaded {
        let (from, to) = (x(from.max(0.0)), x(to.min(x_max)));
        let (width, height) = (to - from, HEIGHT - TOP - BOTTOM);
        write!(html, "<rect class=\"held\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height}\"/>")?;
    }
    let y_ticks: Vec<f64> = if plot.log_share {
        [100.0, 10.0, 1.0, 0.1, 0.01, 0.001].into_iter().filter(|tick| *tick >= y_min).collect()
    } else {
        ticks(y_max)
    };
    for tick in y_ticks {
        let (at, right, label) = (y(tick), WIDTH - RIGHT, short(tick));
        write!(html, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>")?;
        write!(html, "<text x=\"{:.1}\" y=\"{:.1}\" class=\"end\">{label}</text>", LEFT - 6.0, at + 4.0)?;
    }
    for value in ticks(x_max) {
        let (at, below, label) = (x(value), HEIGHT - BOTTOM + 16.0, short(value));
        write!(html, "<text x=\"{at:.1}\" y=\"{below:.1}\" class=\"middle\">{label}</text>")?;
    }
    let (middle, bottom, half) = ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 4.0, (HEIGHT - BOTTOM + TOP) / 2.0);
    write!(html, "<text x=\"{middle:.1}\" y=\"{bottom:.1}\" class=\"middle unit\">{}</text>", plot.x_label)?;
    write!(
        html,
        "<text transform=\"translate(12 {half:.1}) rotate(-90)\" class=\"middle unit\">{}</text>",
        plot.y_label
    )?;
    for (n, line) in lines.iter().enumerate() {
        let places = line.points.iter().map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value)));
        let places = places.collect::<Vec<_>>().join(" ");
        writeln!(html, "<polyline class=\"l{n}\" points=\"{places}\"/>")?;
    }
    html.write_str("</svg></figure>\n")
}

/// [`round_up`], in finer steps, so that a plot fills its frame.
fn round_up_axis(value: f64) -> f64 {
    let coarse = round_up(value);
    if value <= 0.0 {
        return coarse;
    }
    [0.5, 0.6, 0.8].map(|part| part * coarse).into_iter().find(|top| *top >= value).unwrap_or(coarse)
}

/// From 0 to the end of an axis, in steps of 1, 2 or 5 times a power of ten where that can be.
fn ticks(end: f64) -> Vec<f64> {
    let is_round = |n: &u32| (round_up(end / f64::from(*n)) * f64::from(*n) - end).abs() < 1e-9 * end;
    let steps = [5, 4, 6, 3].into_iter().find(is_round).unwrap_or(4);
    (0..=steps).map(|n| end * f64::from(n) / f64::from(steps)).collect()
}

fn write_tables(html: &mut String, report: &Report) -> std::fmt::Result {
    let (joins, media) = (&report.joins, &report.media);
    html.push_str("<div class=\"tables\"><table><tr><th>Times, ms<th>count<th>p50<th>p95<th>p99<th>max</tr>\n");
    for (name, of) in [
        ("Latency", &media.latency),
        ("Latency of audio", &media.audio_latency),
        ("Latency of video", &media.video_latency),
        ("Publishers late by", &report.late),
        ("POST to answer", &joins.times.answer),
        ("Answer to ICE", &joins.times.ice),
        ("ICE to DTLS", &joins.times.dtls),
        ("POST to connected", &joins.times.connected),
        ("POST to first packet", &joins.times.first_packet),
    ] {
        let Percentiles { count, p50_ms, p95_ms, p99_ms, max_ms } = *of;
        write!(html, "<tr><td>{name}<td>{count}")?;
        for ms in [p50_ms, p95_ms, p99_ms, max_ms] {
            write!(html, "<td>{}", shown(ms, 2))?;
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table><table><tr><th>Counts<th></tr>\n");
    let counts: [(&str, String); 12] = [
        ("Joins asked", joins.asked.to_string()),
        ("Joins accepted", joins.accepted.to_string()),
        ("Connected to the end", joins.connected.to_string()),
        ("Packets sent", media.sent.to_string()),
        ("Packets expected", media.expected.to_string()),
        ("Packets received", media.received.to_string()),
        ("Duplicates", media.duplicates.to_string()),
        ("Reordered", media.reordered.to_string()),
        ("Foreign", media.foreign.to_string()),
        ("Viewers starved", format!("{} of {}", media.starved, media.viewers)),
        ("Busiest thread", format!("{:.0} % of its core", report.tool.busiest_thread_pct)),
        ("Payload received", format!("{:.1} Mbit/s", media.mbit_per_s)),
    ];
    for (name, value) in counts {
        writeln!(html, "<tr><td>{name}<td>{value}</tr>")?;
    }
    for refused in &joins.refused {
        write!(html, "<tr><td>Refused: {}", escaped(&refused.name()))?;
        if !refused.detail.is_empty() {
            write!(html, "<br><small>{}</small>", escaped(&refused.detail))?;
        }
        writeln!(html, "<td>{}</tr>", refused.count)?;
    }
    for failed in &joins.failed {
        writeln!(html, "<tr><td>Failed: {}<td>{}</tr>", escaped(&failed.why), failed.count)?;
    }
    html.push_str("</table></div>\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{FailedCount, RefusedCount, tests::report};

    #[test]
    fn the_page_is_whole_without_the_network_and_without_script() {
        let page = page(&report());
        for word in ["http://www", "https://", "<script", "@import", "url(", "<link", "<img"] {
            assert!(!page.contains(word), "{word}");
        }
        assert_eq!(page.matches("<svg").count(), 5);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(page.contains("prefers-color-scheme: dark"));
        assert!(page.contains("8991") && page.contains("6.50 µs"));
    }

    #[test]
    fn what_a_server_says_is_text() {
        let mut report = report();
        report.joins.refused =
            vec![RefusedCount { status: Some(503), code: "<b>".into(), detail: "<u>full</u>".into(), count: 1 }];
        report.joins.failed = vec![FailedCount { why: "a & <i>".to_owned(), count: 1 }];
        report.warnings = vec!["1 < 2".to_owned()];
        let page = page(&report);
        for shown in ["&lt;b&gt;", "&lt;u&gt;full", "a &amp; &lt;i&gt;", "1 &lt; 2"] {
            assert!(page.contains(shown), "{shown}");
        }
        assert!(!page.contains("<b>") && !page.contains("<i>") && !page.contains("<u>"));
    }

    #[test]
    fn points_lie_within_their_plot() {
        let page = page(&report());
        let points = page.split("points=\"").skip(1).flat_map(|rest| rest.split('"').next().unwrap_or("").split(' '));
        let mut seen = 0;
        for point in points {
            let (x, y) = point.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((LEFT - 0.1..=WIDTH - RIGHT + 0.1).contains(&x), "{point}");
            assert!((TOP - 0.1..=HEIGHT - BOTTOM + 0.1).contains(&y), "{point}");
            seen += 1;
        }
        assert!(seen > 20);
    }

    #[test]
    fn a_run_that_measured_nothing_has_a_page() {
        let mut report = report();
        (report.timeline, report.latency_tail) = (Vec::new(), Vec::new());
        assert_eq!(page(&report).matches("Nothing was measured.").count(), 5);
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, top) in [(0.0, 1.0), (0.7, 0.8), (1.0, 1.0), (3.1, 4.0), (45.0, 50.0), (36_152.0, 40_000.0)] {
            let got = round_up_axis(value);
            assert!((got - top).abs() < 1e-9 * top, "{value}: {got}");
        }
        for (end, steps) in [(25.0, 5), (2.0, 4), (12.0, 6), (16.0, 4), (40_000.0, 4)] {
            assert_eq!((ticks(end).len(), ticks(end).last()), (steps + 1, Some(&end)), "{end}");
        }
    }
}
