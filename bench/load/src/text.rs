//! What a terminal shows: a line for every second, and a summary.

use crate::histogram::Percentiles;
use crate::report::Report;
use crate::run::{Phase, Progress};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

/// Where progress is drawn: a table that stays in place on a terminal, plain lines elsewhere.
pub struct Screen<W> {
    out: W,
    in_place: bool,
    drawn: bool,
}

impl Screen<io::Stderr> {
    /// On standard error: standard output is for results.
    pub fn stderr() -> Self {
        Self::new(io::stderr(), io::stderr().is_terminal())
    }
}

/// Lines of the table.
const TABLE_LINES: usize = 6;

impl<W: Write> Screen<W> {
    /// On `out`; `in_place`: it understands cursor movement (ECMA-48 CUU, ED).
    pub fn new(out: W, in_place: bool) -> Self {
        Self { out, in_place, drawn: false }
    }

    /// Draws a second. What cannot be drawn is no fault of the run.
    pub fn draw(&mut self, progress: &Progress) {
        let text = if self.in_place {
            let back = if self.drawn { format!("\x1b[{TABLE_LINES}A\x1b[J") } else { String::new() };
            back + &table(progress)
        } else {
            line(progress)
        };
        self.drawn = true;
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Ramp => "ramp",
        Phase::Settle => "settle",
        Phase::Hold => "hold",
        Phase::Leave => "leave",
    }
}

fn or_dash(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

fn line(progress: &Progress) -> String {
    let (name, now) = (phase(progress.phase), &progress.moment);
    if progress.phase == Phase::Leave {
        return format!("{name:6} taking leave\n");
    }
    let mut line =
        format!("{name:6} {:5.0} s  joined {}/{}  connected {}", now.at_s, now.accepted, progress.joins, now.connected);
    for (what, count) in [("refused", progress.refused), ("failed", progress.failed)] {
        if count > 0 {
            // A string takes whatever is written.
            let _ = write!(line, "  {what} {count}");
        }
    }
    let _ = write!(
        line,
        "  in {:.0}/s  out {:.0}/s  p50 {} ms  p99 {} ms  tool {:.0} %",
        now.received_per_s,
        now.sent_per_s,
        or_dash(now.p50_ms, 2),
        or_dash(now.p99_ms, 2),
        now.tool_pct
    );
    if let Some(server) = now.server_pct {
        let _ = write!(line, "  server {server:.0} %");
    }
    line + "\n"
}

fn table(progress: &Progress) -> String {
    let now = &progress.moment;
    let server = now.server_pct.map_or_else(|| "–".to_owned(), |pct| format!("{pct:.0} %"));
    let rows: [[String; 4]; TABLE_LINES - 1] = [
        [
            "asked".into(),
            format!("{}/{}", progress.asked, progress.joins),
            "received".into(),
            format!("{:.0}/s", now.received_per_s),
        ],
        ["accepted".into(), now.accepted.to_string(), "sent".into(), format!("{:.0}/s", now.sent_per_s)],
        ["connected".into(), now.connected.to_string(), "p50".into(), format!("{} ms", or_dash(now.p50_ms, 2))],
        ["refused".into(), progress.refused.to_string(), "p99".into(), format!("{} ms", or_dash(now.p99_ms, 2))],
        [
            "failed".into(),
            progress.failed.to_string(),
            "tool / server CPU".into(),
            format!("{:.0} % / {server}", now.tool_pct),
        ],
    ];
    let mut text = format!("{} {:.0} s\n", phase(progress.phase), now.at_s);
    for [left, left_value, right, right_value] in rows {
        let _ = writeln!(text, "  {left:<10}{left_value:>12}    {right:<18}{right_value:>14}");
    }
    text
}

/// The whole report as text.
pub fn summary(report: &Report) -> String {
    let mut text = String::new();
    // A string takes whatever is written.
    let _ = write_summary(&mut text, report);
    text
}

fn percentiles(name: &str, of: &Percentiles) -> String {
    let [p50, p95, p99, max] = [of.p50_ms, of.p95_ms, of.p99_ms, of.max_ms].map(|ms| or_dash(ms, 2));
    format!("  {name:<26}{p50:>9}{p95:>9}{p99:>9}{max:>9}\n")
}

fn write_summary(text: &mut String, report: &Report) -> std::fmt::Result {
    let (joins, media) = (&report.joins, &report.media);
    writeln!(text, "\nJoins: {} asked, {} accepted, {} connected", joins.asked, joins.accepted, joins.connected)?;
    for refused in &joins.refused {
        let detail = if refused.detail.is_empty() { String::new() } else { format!(": {}", refused.detail) };
        writeln!(text, "  {} refused: {}{detail}", refused.count, refused.name())?;
    }
    for failed in &joins.failed {
        writeln!(text, "  {} failed: {}", failed.count, failed.why)?;
    }
    writeln!(text, "Media, {:.1} s:", report.hold_s)?;
    writeln!(text, "  {} packets sent, {} expected by {} viewers", media.sent, media.expected, media.viewers)?;
    writeln!(
        text,
        "  {} received ({:.0}/s, {:.1} Mbit/s), {:.3} % lost, {} duplicate, {} reordered",
        media.received, media.packets_per_s, media.mbit_per_s, media.loss_pct, media.duplicates, media.reordered
    )?;
    writeln!(text, "{:<28}{:>9}{:>9}{:>9}{:>9}", "Times in ms", "p50", "p95", "p99", "max")?;
    for (name, of) in [
        ("latency", &media.latency),
        ("latency of audio", &media.audio_latency),
        ("latency of video", &media.video_latency),
        ("publishers late by", &report.late),
        ("POST to answer", &joins.times.answer),
        ("answer to ICE", &joins.times.ice),
        ("ICE to DTLS", &joins.times.dtls),
        ("POST to first packet", &joins.times.first_packet),
    ] {
        if of.count > 0 {
            text.push_str(&percentiles(name, of));
        }
    }
    writeln!(
        text,
        "Tool: {:.0} % of a core; its busiest thread (of {}) {:.0} %",
        report.tool.cores_pct, report.tool.threads, report.tool.busiest_thread_pct
    )?;
    if let Some(server) = &report.server {
        writeln!(
            text,
            "Server: {:.0} % of a core, {} µs a packet, {} MiB resident, {} KiB a viewer",
            server.cores_pct,
            or_dash(server.us_per_packet, 2),
            server.resident_kib / 1024,
            or_dash(server.resident_kib_per_viewer, 0)
        )?;
    }
    for warning in &report.warnings {
        writeln!(text, "Warning: {warning}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{RefusedCount, tests::report};

    fn progress() -> Progress {
        let moment = report().timeline[5].clone();
        Progress { phase: Phase::Hold, asked: 11, joins: 11, refused: 1, failed: 0, moment }
    }

    #[test]
    fn a_terminal_is_drawn_over_and_a_file_gets_lines() {
        let drawn = |in_place| {
            let mut screen = Screen::new(Vec::new(), in_place);
            screen.draw(&progress());
            screen.draw(&progress());
            String::from_utf8(screen.out).unwrap()
        };
        let (terminal, file) = (drawn(true), drawn(false));
        let tables: Vec<&str> = terminal.split("\x1b[6A\x1b[J").collect();
        assert_eq!(tables.len(), 2);
        assert!(tables.iter().all(|table| table.lines().count() == TABLE_LINES), "{terminal}");
        assert!(!file.contains('\x1b') && file.lines().count() == 2, "{file}");
        let first = file.lines().next().unwrap();
        for words in ["joined 10/11", "refused 1", "in 4500/s", "p99 6.50 ms", "server 9 %"] {
            assert!(first.contains(words), "{words} in {first}");
        }
        assert!(!first.contains("failed"), "{first}");
    }

    #[test]
    fn the_summary_tells_refusals_and_leaves_out_what_was_not_measured() {
        let mut report = report();
        let refused = |status, code: &str, detail: &str, count| RefusedCount {
            status,
            code: code.into(),
            detail: detail.into(),
            count,
        };
        report.joins.refused =
            vec![refused(Some(503), "busy", "", 2), refused(None, "unusable_answer", "no fingerprint in it", 1)];
        report.warnings = vec!["Look out.".to_owned()];
        let text = summary(&report);
        for words in [
            "2 refused: 503 busy\n",
            "1 refused: no answer unusable_answer: no fingerprint in it\n",
            "8991 received",
            "0.100 % lost",
            "6.50 µs a packet",
            "Warning: Look out.",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
        assert!(!text.contains("latency of audio"), "{text}");
    }
}
