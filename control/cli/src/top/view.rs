//! Drawing of the live view. Fits 80 columns and 24 rows; with more, it shows more.

use super::app::{App, loss, rate};
use crate::events::{at, mark, words};
use crate::flows::ratio;
use crate::table::{duration, percent};
use jiff::tz::TimeZone;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Block, Borders, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState, Wrap,
};
use recoded_api::v1::{Event, Flow};

/// Rows of the panel of next hops and of that of events, frames included, on a small screen.
const NEXT_HOPS_ROWS: u16 = 6;
const EVENTS_ROWS: u16 = 7;

/// Smallest usable screen.
const ROWS_MIN: u16 = 10;
const COLUMNS_MIN: u16 = 40;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

const HELP: &[&str] = &[
    "up, down     choose a flow; also k, j, page up, page down, home, end",
    "enter        all of the chosen flow; again, or esc: back",
    "s            sort: as configured, by rate, by loss, by state",
    "p            pause, continue",
    "q            quit",
    "",
    "Mbit/s       IP packets taken from the tunnel or delivered to it, last second",
    "wire         what left for the next hops, headers included, last second",
    "x theory     wire for each of Mbit/s; packets for each symbol by theory",
    "loss         of the worst hop that is known here",
    "delay ms     until what was lost is decoded, at a sink",
    "",
    "any key closes this",
];

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        let words = format!("make this at least {COLUMNS_MIN} by {ROWS_MIN}; q quits");
        frame.render_widget(Paragraph::new(words), area);
        return;
    }
    let [title, body, keys] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3), Constraint::Length(1)])
            .areas(area);
    draw_title(frame, app, title);
    if app.is_drilled {
        draw_flow(frame, app, body);
    } else {
        let events = EVENTS_ROWS.max(body.height / 4).min(body.height / 3);
        let hops = NEXT_HOPS_ROWS.min(body.height / 4);
        let [flows, hops, events] = Layout::vertical([
            Constraint::Min(4),
            Constraint::Length(hops),
            Constraint::Length(events),
        ])
        .areas(body);
        draw_flows(frame, app, flows);
        draw_next_hops(frame, app, hops);
        draw_events(frame, app, events, |_| true);
    }
    let words = "arrows choose  enter details  s sort  p pause  ? help  q quit";
    frame.render_widget(Paragraph::new(words).dim(), keys);
    if app.is_helping {
        draw_help(frame, area);
    }
}

fn draw_title(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let mut spans = vec!["recoded".bold()];
    if let Some(state) = &app.state {
        let up = duration(state.uptime_seconds);
        spans.push(Span::raw(format!(" {}  up {up}  edition {}", state.version, state.edition)));
    }
    if app.is_paused {
        spans.push("  PAUSED".yellow().bold());
    }
    if let Some(trouble) = &app.trouble {
        let old = if app.state.is_some() { "; last state below" } else { "" };
        let words: String = clean(&format!("  NO ANSWER{old}: {trouble}"));
        spans.push(words.red().bold());
    }
    let width = u16::try_from(app.clock.chars().count()).unwrap_or(0);
    let [left, right] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(width + 1)]).areas(area);
    frame.render_widget(Paragraph::new(Line::from(spans)), left);
    let clock = Paragraph::new(app.clock.clone()).alignment(Alignment::Right);
    frame.render_widget(clock, right);
}

fn draw_flows(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let flows = app.flows();
    let title = match flows.len() {
        0 if app.state.is_none() => " no state yet ".to_owned(),
        0 => " no flow is configured ".to_owned(),
        number => format!(" flows: {number}, {} ", app.sort.name()),
    };
    // A truncated number would look like another flow.
    let digits = flows.iter().map(|flow| flow.id.to_string().len()).max().unwrap_or(0).max(4);
    let id_width = u16::try_from(digits).unwrap_or(u16::MAX);
    let widths = [id_width, 6, 7, 8, 8, 9, 6, 8].map(Constraint::Length);
    let widths = widths.into_iter().chain([Constraint::Min(4)]);
    let header = ["flow", "role", "state", "Mbit/s", "wire", "x theory", "loss", "delay ms", ""];
    let aligned = header.iter().enumerate().map(|(at, word)| cell((*word).to_owned(), at));
    // Borders, gaps between nine columns, and the widths of the others.
    let bars = usize::from(area.width.saturating_sub(2 + 8 + 52 + id_width)).max(4);
    let rows = flows.iter().map(|flow| flow_row(flow, &bars_of(app, flow, bars)));
    let rows: Vec<Row<'_>> = rows.collect();
    let chosen = app.chosen().map(|(row, _)| row);
    let table = Table::new(rows, widths)
        .header(Row::new(aligned).style(Style::new().bold()))
        .block(Block::bordered().title(title))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut shown = TableState::new().with_offset(app.offset).with_selected(chosen);
    frame.render_stateful_widget(table, area, &mut shown);
    app.offset = shown.offset();
}

/// Right-aligns numbers, left-aligns words.
fn cell(text: String, column: usize) -> Cell<'static> {
    let is_word = matches!(column, 1 | 2 | 8);
    let line = Line::from(text);
    Cell::from(if is_word { line } else { line.right_aligned() })
}

fn flow_row(flow: &Flow, bars: &str) -> Row<'static> {
    let style = match flow.state.as_deref() {
        Some("down") => Style::new().fg(Color::Red),
        Some("waiting" | "quiet") => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    };
    let cells = [
        flow.id.to_string(),
        clean(&flow.role),
        clean(flow.state.as_deref().unwrap_or("-")),
        some(flow.goodput_mbit),
        some(flow.wire_mbit),
        ratio(flow),
        loss(flow).map_or("-".into(), percent),
        some(flow.decode_delay_mean_us.map(|micros| micros / 1e3)),
        bars.to_owned(),
    ];
    let cells = cells.into_iter().enumerate().map(|(column, text)| cell(text, column));
    Row::new(cells).style(style)
}

/// The newest rates of a flow as bars, scaled to the highest.
fn bars_of(app: &App, flow: &Flow, width: usize) -> String {
    let Some(samples) = app.rates.get(&flow.id) else { return String::new() };
    let newest = samples.iter().skip(samples.len().saturating_sub(width));
    let most = samples.iter().flatten().copied().fold(0.0, f64::max);
    let bar = |sample: &Option<f64>| match sample {
        Some(rate) if *rate > 0.0 && most > 0.0 => {
            // Between 0 and 7 by construction.
            let level = (rate / most * 7.0).round().clamp(0.0, 7.0) as usize;
            BARS[level]
        }
        _ => ' ',
    };
    newest.map(bar).collect()
}

fn draw_next_hops(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let Some((_, flow)) = app.chosen() else {
        frame.render_widget(Block::bordered().title(" next hops "), area);
        return;
    };
    let role = clean(&flow.role);
    if flow.neighbours.is_empty() {
        let block = Block::bordered().title(format!(" flow {}, {role} ", flow.id));
        let words = Paragraph::new(losses(flow)).wrap(Wrap { trim: true });
        frame.render_widget(words.block(block), area);
        return;
    }
    let widths = [7, 7, 8, 7, 6, 9, 7].map(Constraint::Length);
    let widths = [Constraint::Min(18)].into_iter().chain(widths);
    let header =
        ["next hop", "Mbit/s", "trip ms", "queue ms", "loss", "share", "behind ms", "heard s"];
    let right = |(at, text): (usize, String)| {
        let line = Line::from(text);
        Cell::from(if at == 0 { line } else { line.right_aligned() })
    };
    let header = header.iter().map(|word| (*word).to_owned()).enumerate().map(right);
    let rows = flow.neighbours.iter().map(|hop| {
        let millis = |micros: Option<f64>| some(micros.map(|micros| micros / 1e3));
        let cells = [
            clean(&hop.next_hop),
            format!("{:.1}", hop.rate_mbit),
            millis(hop.round_trip_us),
            millis(hop.queue_us),
            hop.loss.map_or("-".into(), percent),
            hop.share.map_or("-".into(), |share| format!("{:.0} %", share * 100.0)),
            millis(hop.behind_us),
            some(hop.heard_ago_seconds),
        ];
        let row = Row::new(cells.into_iter().enumerate().map(right));
        match crate::branches::state(hop) {
            "silent" => row.style(Style::new().fg(Color::Red)),
            "in doubt" | "behind" => row.style(Style::new().fg(Color::Yellow)),
            _ => row,
        }
    });
    let table = Table::new(rows.collect::<Vec<_>>(), widths)
        .header(Row::new(header).style(Style::new().bold()))
        .block(Block::bordered().title(format!(" flow {}, {role}: next hops ", flow.id)));
    frame.render_widget(table, area);
}

/// For a flow without reports of next hops: its next hops, and the losses by hop.
fn losses(flow: &Flow) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (words, hops) in [("to", flow.next_hops.join(" ")), ("from", flow.upstreams.join(" "))] {
        if !hops.is_empty() {
            lines.push(Line::from(clean(&format!("{words} {hops}"))));
        }
    }
    let losses = flow.hops.iter().map(|hop| format!("hop {} {}", hop.hop, percent(hop.loss)));
    let losses: Vec<String> = losses.collect();
    if !losses.is_empty() {
        lines.push(Line::from(format!("loss: {}", losses.join(", "))));
    }
    lines
}

fn draw_events(frame: &mut Frame<'_>, app: &App, area: Rect, is_wanted: impl Fn(&Event) -> bool) {
    let zone = app.zone.clone().unwrap_or_else(TimeZone::system);
    let rows = usize::from(area.height.saturating_sub(2));
    let wanted = app.events.iter().rev().filter(|event| is_wanted(event));
    // The newest is at the top, so old ones are cut off.
    let lines = wanted.take(rows).map(|event| {
        let time = at(event, &zone).map_or("-".into(), |at| at.strftime("%H:%M:%S").to_string());
        let line = Line::from(format!("{time} {} {}", mark(event), words(event)));
        match mark(event) {
            ' ' => line,
            '!' => line.yellow(),
            _ => line.red(),
        }
    });
    let block = Block::bordered().title(" events, newest first ");
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
}

/// Draws one flow in full.
fn draw_flow(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let Some((_, flow)) = app.chosen() else { return };
    let facts = facts(flow);
    let rows = u16::try_from(facts.len()).unwrap_or(0) + 2;
    let hops = u16::try_from(flow.neighbours.len()).unwrap_or(8).clamp(1, 8) + 3;
    let events = 5.max(area.height / 4).min(area.height / 3);
    let [top, chart, next_hops, below] = Layout::vertical([
        Constraint::Length(rows.min(area.height / 2)),
        Constraint::Min(3),
        Constraint::Length(hops.min(area.height / 3)),
        Constraint::Length(events),
    ])
    .areas(area);
    let title = format!(" flow {}, {} ", flow.id, clean(&flow.role));
    let facts: Vec<Line<'_>> = facts.into_iter().map(Line::from).collect();
    let words = Paragraph::new(facts).wrap(Wrap { trim: true });
    frame.render_widget(words.block(Block::bordered().title(title)), top);
    draw_chart(frame, app, flow, chart);
    draw_next_hops(frame, app, next_hops);
    let subject = format!("flow {}", flow.id);
    draw_events(frame, app, below, |event| event.subject == subject);
}

fn facts(flow: &Flow) -> Vec<String> {
    let known = |number: Option<f64>, digits: usize| {
        number.map_or("-".into(), |number| format!("{number:.digits$}"))
    };
    let code = if flow.code.is_empty() { "code not known yet" } else { &flow.code };
    let (from, to) = (flow.upstreams.join(", "), flow.next_hops.join(", "));
    let place = match flow.tunnel.as_deref() {
        Some(tunnel) if from.is_empty() => format!("from {tunnel} to {to}"),
        Some(tunnel) => format!("from {from} to {tunnel}"),
        None => format!("from {from} to {to}"),
    };
    let mut facts = vec![
        format!("{code}, {}, {place}", flow.state.as_deref().unwrap_or("state not known")),
        format!(
            "{} Mbit/s, {} on the wire ({}x; theory {})",
            known(flow.goodput_mbit, 1),
            known(flow.wire_mbit, 1),
            known(crate::flows::wire_ratio(flow), 2),
            known(flow.overhead_theory, 2)
        ),
        format!(
            "since the start: {} packets for each symbol, {} generations failed",
            known(flow.overhead, 3),
            crate::flows::failed(flow)
        ),
    ];
    if let (Some(mean), Some(max)) = (flow.decode_delay_mean_us, flow.decode_delay_max_us) {
        let (mean, max) = (mean / 1e3, max / 1e3);
        facts.push(format!("decoded after {mean:.1} ms on average, {max:.1} ms at most"));
    }
    let rank = flow.rank_ratio.or_else(|| flow.remote.as_ref()?.rank_ratio);
    if rank.is_some() {
        let theory = known(flow.rank_theory, 4);
        facts.push(format!("rank {} of full ones, theory {theory}", known(rank, 4)));
    }
    if !flow.hops.is_empty() {
        let losses = flow.hops.iter().map(|hop| format!("hop {} {}", hop.hop, percent(hop.loss)));
        facts.push(format!("loss: {}", losses.collect::<Vec<_>>().join(", ")));
    }
    facts.iter().map(|fact| clean(fact)).collect()
}

fn draw_chart(frame: &mut Frame<'_>, app: &App, flow: &Flow, area: Rect) {
    let what = if flow.goodput_mbit.is_some() { "IP packets" } else { "wire" };
    let now = rate(flow).map_or("-".into(), |rate| format!("{rate:.1}"));
    let samples = app.rates.get(&flow.id);
    let most = samples.into_iter().flatten().flatten().copied().fold(0.0, f64::max);
    let title = format!(" {what}: {now} Mbit/s, most {most:.1} ");
    let width = usize::from(area.width);
    let newest = samples
        .into_iter()
        .flat_map(|samples| samples.iter().skip(samples.len().saturating_sub(width)).copied());
    // Bars are whole numbers; kbit/s are fine enough.
    let kilobits = newest.map(|rate| rate.map(|mbit| (mbit * 1e3).max(0.0) as u64));
    let block = Block::new().borders(Borders::ALL).title(title);
    frame.render_widget(Sparkline::default().block(block).data(kilobits.collect::<Vec<_>>()), area);
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let rows = u16::try_from(HELP.len()).unwrap_or(0) + 2;
    let width = HELP.iter().map(|line| line.len()).max().unwrap_or(0);
    let width = u16::try_from(width).unwrap_or(0) + 4;
    let (width, rows) = (width.min(area.width), rows.min(area.height));
    let place =
        Rect { x: (area.width - width) / 2, y: (area.height - rows) / 2, width, height: rows };
    frame.render_widget(Clear, place);
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(format!(" {line}"))).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), place);
}

fn some(number: Option<f64>) -> String {
    number.map_or("-".into(), |number| format!("{number:.1}"))
}

/// Remote text must not move the cursor.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
