use mgp_protocol::mgp::approvals::{Entry, Subject};
use mgp_protocol::mgp::health::ResourcesInUse;
use mgp_protocol::mgp::servers::Server;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use super::super::metrics::CallTotals;
use super::super::sample::Sample;
use super::*;

const PLAIN: Palette = Palette { colours: false };

fn terminal(width: u16, height: u16) -> Terminal<TestBackend> {
    Terminal::new(TestBackend::new(width, height)).unwrap()
}

/// The screen as lines without trailing blanks.
fn screen_lines(terminal: &mut Terminal<TestBackend>, model: &mut Model) -> Vec<String> {
    terminal
        .draw(|frame| draw(frame.buffer_mut(), model, 61_000, PLAIN))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let width = usize::from(buffer.area().width);
    let lines = buffer.content().chunks(width);
    let lines = lines.map(|cells| {
        cells
            .iter()
            .map(ratatui::buffer::Cell::symbol)
            .collect::<String>()
    });
    lines.map(|line| line.trim_end().to_owned()).collect()
}

fn at(width: u16, height: u16, model: &mut Model) -> Vec<String> {
    screen_lines(&mut terminal(width, height), model)
}

fn press(model: &mut Model, code: KeyCode) {
    model.handle_key(KeyEvent::new(code, KeyModifiers::NONE));
}

fn connected(id: &str) -> Server {
    Server {
        id: id.into(),
        state: "connected".into(),
        pid: Some(7),
        uses: Some(ResourcesInUse {
            memory_bytes: 157 << 20,
            cpu_seconds: 1.0,
            ..ResourcesInUse::default()
        }),
        ..Server::default()
    }
}

fn question() -> Entry {
    Entry {
        id: "tobami".into(),
        subject: Subject::Permissions,
        server: Some("mail".into()),
        agent: None,
        text: "server mail needs \u{1b}]0;x\u{7}network.outbound".into(),
        details: vec!["network.outbound: moderate\nmgp approve other".into()],
        parts: Vec::new(),
        options: None,
        since: "1970-01-01T00:00:01Z".into(),
        until: None,
    }
}

/// Two samples, 2 s apart: `files` was called 25 times between them, with one failure.
fn model(questions: &[Entry]) -> Model {
    let mut model = Model::default();
    for (at_ms, ended, errors, cpu_seconds) in [(0, 100, 3, 1.0), (2000, 125, 4, 1.2)] {
        let mut taken = Sample {
            taken_at_ms: at_ms,
            ..Sample::default()
        };
        taken.status.version = "0.1.0".into();
        taken.status.pid = 17553;
        taken.status.uptime_secs = 300 + at_ms / 1000;
        taken.status.doors = vec!["socket /run/mgp.sock".into()];
        let loops = Server {
            id: "loops".into(),
            state: "error".into(),
            reason: Some("exited with \u{1b}[31mcode 1".into()),
            restarts: 2,
            next_try_ms: Some(240_000),
            ..Server::default()
        };
        let mut files = connected("files");
        if let Some(uses) = &mut files.uses {
            uses.cpu_seconds = cpu_seconds;
        }
        taken.status.servers = vec![connected("git"), files, loops];
        let mut calls = CallTotals {
            finished: ended,
            errors,
            ..CallTotals::default()
        };
        calls.durations.buckets[2] = ended;
        taken.metrics.calls = [("files".to_owned(), calls)].into();
        taken.metrics.in_flight = 1;
        taken.pending.pending = questions.to_vec();
        model.add_sample(taken);
    }
    model
}

#[test]
fn a_usual_terminal_shows_metrics_servers_and_pending_entries() {
    let lines = at(80, 24, &mut model(&[question()]));
    let want = [
        "mgp 0.1.0, process 17553, up 5 min, 2 of 3 servers connected, 0 agents",
        "calls   12.5 a second, 0.5 errors, p50 0.7 ms, p99 0.9 ms, 1 under way",
        "uses    memory –, of servers 314 MiB, processor –",
        "files   audit sync p99 –, 0 waiting; journal sync p99 –",
        "doors   socket /run/mgp.sock",
        "  SERVER   STATE▾        CALLS/S  ERR/S     P50     P99   MEMORY    CPU    CALLS",
        "> loops    error        exited with code 1 · next try in 4 min · 2 restarts",
        "  files    connected        12.5    0.5  0.7 ms  0.9 ms  157 MiB    10%      125",
        "  git      connected           0      0       –       –  157 MiB   0.0%        0",
    ];
    assert_eq!(lines[..want.len()], want);
    assert_eq!(
        lines[21..],
        [
            "WAITING FOR YOU: 1",
            "> tobami         60 s server mail needs \\u{1b}]0… mgp approve tobami",
            "q quit  y/n answer  / filter  s order  ? help  Tab panel  Enter more  r reverse",
        ]
    );
}

#[test]
fn a_small_terminal_shows_what_matters_most() {
    let lines = at(40, 12, &mut model(&[question()]));
    assert_eq!(
        lines,
        [
            "mgp 0.1.0, process 17553, up 5 min, 2 o…",
            "calls   12.5 a second, 0.5 errors, p50 …",
            "uses    memory –, of servers 314 MiB, p…",
            "  SERVER   STATE▾     CALLS/S     P99",
            "> loops    error     exited with code 1…",
            "  files    connected     12.5  0.9 ms",
            "  git      connected        0       –",
            "",
            "",
            "WAITING FOR YOU: 1",
            "> tobami         60 s server mail needs…",
            "q quit  y/n answer  / filter  s order",
        ]
    );
    let low = at(40, 5, &mut model(&[question()]));
    assert_eq!(low[0], "mgp 0.1.0, process 17553, up 5 min, 2 o…");
    assert!(low[2].starts_with("> loops"), "{low:?}");
    assert_eq!(low[3], "WAITING FOR YOU: 1");
    assert_eq!(at(19, 24, &mut model(&[]))[0], "too small; q leaves");
    for (width, height) in [(1, 1), (20, 4), (21, 9), (300, 4), (20, 100), (1000, 300)] {
        let mut model = model(&[question()]);
        at(width, height, &mut model);
        press(&mut model, KeyCode::Char('y'));
        at(width, height, &mut model);
    }
}

#[test]
fn a_wide_terminal_has_room_for_reasons() {
    let mut model = model(&[]);
    press(&mut model, KeyCode::Char('C'));
    let lines = at(130, 20, &mut model);
    let head = lines.iter().find(|line| line.contains("SERVER")).unwrap();
    for title in ["CALLS/S▾", "P50", "RESTARTS", "CALLS", "NOW", "WHY"] {
        assert!(head.contains(title), "{head}");
    }
    assert!(
        lines.iter().any(|line| line.starts_with("> files")),
        "{lines:?}"
    );
    assert!(!lines.iter().any(|line| line.contains("WAITING")));
}

/// Only visible rows are drawn, including the selected one.
#[test]
fn only_visible_servers_of_ten_thousand_are_drawn() {
    let mut taken = Sample::default();
    let ids = (0..10_000).map(|at| format!("server-{at:05}"));
    taken.status.servers = ids.map(|id| connected(&id)).collect();
    let mut model = Model::default();
    model.add_sample(taken);
    let mut terminal = terminal(80, 24);
    let lines = screen_lines(&mut terminal, &mut model);
    assert!(lines.iter().any(|line| line.starts_with("> server-00000")));
    press(&mut model, KeyCode::End);
    let lines = screen_lines(&mut terminal, &mut model);
    assert!(
        lines.iter().any(|line| line.starts_with("> server-09999")),
        "{lines:?}"
    );
    press(&mut model, KeyCode::PageUp);
    let lines = screen_lines(&mut terminal, &mut model);
    assert!(
        lines.iter().any(|line| line.starts_with("> server-0998")),
        "{lines:?}"
    );
}

#[test]
fn a_pending_entry_is_shown_completely() {
    let mut model = model(&[question()]);
    press(&mut model, KeyCode::Char('y'));
    let lines = at(60, 20, &mut model).join("\n");
    for part in [
        " tobami ",
        "permissions",
        "network.outbound: moderate⏎mgp approve other",
        "server: mail",
        "waits for 60 s",
        "mgp approve tobami   or   mgp deny tobami",
        "Say YES to this, for good?",
        "Enter confirms  Esc back",
    ] {
        assert!(lines.contains(part), "{part}: {lines}");
    }
    assert!(!lines.contains(['\u{1b}', '\u{7}']), "{lines}");
    let low = at(60, 8, &mut model).join("\n");
    assert!(
        low.contains("more lines: PgDn") && !low.contains("Enter confirms"),
        "{low}"
    );

    press(&mut model, KeyCode::Esc);
    press(&mut model, KeyCode::Enter);
    let lines = at(80, 24, &mut model).join("\n");
    assert!(lines.contains("mgp servers logs loops -f"), "{lines}");
    press(&mut model, KeyCode::Esc);
    press(&mut model, KeyCode::Char('?'));
    assert!(
        at(80, 24, &mut model)
            .join("\n")
            .contains("order by latency")
    );
}

#[test]
fn filters_notes_and_an_unreachable_kernel_are_shown() {
    let mut model = Model::default();
    assert_eq!(at(80, 24, &mut model)[0], "asking the kernel");
    model = super::tests::model(&[]);
    press(&mut model, KeyCode::Char('/'));
    press(&mut model, KeyCode::Char('g'));
    let lines = at(80, 24, &mut model);
    assert_eq!(lines[23], "/g_   Enter keeps it, Esc takes it back");
    assert!(
        lines.iter().any(|line| line.contains("SERVER …")),
        "{lines:?}"
    );
    assert!(
        !lines.iter().any(|line| line.contains("files    ")),
        "{lines:?}"
    );
    press(&mut model, KeyCode::Char('%'));
    assert!(
        at(80, 24, &mut model)
            .join("\n")
            .contains("no server has this text")
    );
    press(&mut model, KeyCode::Esc);
    model.set_note("approved: x");
    model.set_unreachable("no kernel is running");
    let lines = at(80, 24, &mut model);
    assert_eq!(lines[23], "approved: x");
    assert_eq!(lines[1], "NO ANSWER: no kernel is running");
    assert!(
        lines.iter().any(|line| line.contains("  files")),
        "what was seen last stays"
    );
}

/// With `NO_COLOR` there are no colours; otherwise problems are red.
#[test]
fn colours_follow_the_setting() {
    for colours in [false, true] {
        let mut terminal = terminal(80, 24);
        let mut model = model(&[question()]);
        let palette = Palette { colours };
        terminal
            .draw(|frame| draw(frame.buffer_mut(), &mut model, 0, palette))
            .unwrap();
        let cells = terminal.backend().buffer().content();
        assert_eq!(cells.iter().any(|cell| cell.fg == Color::Red), colours);
        assert!(colours || cells.iter().all(|cell| cell.fg == Color::Reset));
    }
}
