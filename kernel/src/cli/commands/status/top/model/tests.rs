use mgp_protocol::mgp::approvals::{Entry, Subject};
use mgp_protocol::mgp::servers::Server;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;

fn new_entry(id: &str, text: &str) -> Entry {
    Entry {
        id: id.into(),
        subject: Subject::Confirmation,
        server: None,
        agent: None,
        text: text.into(),
        details: Vec::new(),
        parts: Vec::new(),
        options: None,
        since: "1970-01-01T00:00:01Z".into(),
        until: None,
    }
}

fn new_sample(servers: &[&str], questions: &[Entry]) -> Sample {
    let mut new_sample = Sample::default();
    let servers = servers.iter().map(|id| Server {
        id: (*id).into(),
        state: "connected".into(),
        ..Server::default()
    });
    new_sample.status.servers = servers.collect();
    new_sample.pending.pending = questions.to_vec();
    new_sample
}

fn model(servers: &[&str], questions: &[Entry]) -> Model {
    let mut model = Model::default();
    model.add_sample(new_sample(servers, questions));
    model
}

fn press(model: &mut Model, code: KeyCode) -> Option<Action> {
    model.handle_key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn typed(model: &mut Model, keys: &str) -> Option<Action> {
    let wishes = keys.chars().map(|c| press(model, KeyCode::Char(c)));
    wishes.collect::<Vec<_>>().pop().flatten()
}

/// Marks the dialog as read to its end.
fn mark_as_read(model: &mut Model) {
    if let Some(dialog) = &mut model.dialog {
        dialog.scroll_to(5, 10);
    }
}

#[test]
fn a_selected_server_stays_selected_when_it_moves() {
    let mut model = model(&["a", "b", "c"], &[]);
    typed(&mut model, "Njj");
    assert_eq!(model.selected_server_index(), 2);
    typed(&mut model, "r");
    assert_eq!(
        (model.selected_server_index(), &*model.rows[0].id),
        (0, "c")
    );
    model.add_sample(new_sample(&["a", "b", "c", "d"], &[]));
    assert_eq!(model.selected_server_index(), 1);
    model.add_sample(new_sample(&["a", "b"], &[]));
    assert_eq!(model.selected_server_index(), 0, "it is not there any more");
    typed(&mut model, "G");
    assert_eq!(model.rows[model.selected_server_index()].id, "a");
    model.page_rows = 1;
    press(&mut model, KeyCode::PageUp);
    assert_eq!(model.selected_server_index(), 0);
    let mut none = super::tests::model(&[], &[]);
    typed(&mut none, "jkGg");
    press(&mut none, KeyCode::Enter);
    assert_eq!(none.dialog, None);
}

#[test]
fn a_filter_is_typed_and_cleared() {
    let mut model = model(&["files", "git"], &[]);
    typed(&mut model, "/gitq");
    assert!(model.rows.is_empty(), "q is a letter of it");
    press(&mut model, KeyCode::Backspace);
    assert_eq!(model.rows.len(), 1);
    press(&mut model, KeyCode::Enter);
    assert!(!model.is_filter_focused);
    assert_eq!(press(&mut model, KeyCode::Esc), None);
    assert_eq!(model.rows.len(), 2, "Esc takes the filter back first");
    typed(&mut model, "/");
    typed(&mut model, &"x".repeat(500));
    assert_eq!(model.filter.len(), FILTER_LENGTH_MAX);
    press(&mut model, KeyCode::Esc);
    assert_eq!(
        (model.filter.as_str(), model.is_filter_focused),
        ("", false)
    );
    assert_eq!(press(&mut model, KeyCode::Esc), Some(Action::Quit));
}

#[test]
fn ctrl_c_quits_from_every_state() {
    let ctrl = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    let mut model = model(&["a"], &[new_entry("q", "x")]);
    assert_eq!(typed(&mut model, "q"), Some(Action::Quit));
    for open in ["/ab", "?", "y"] {
        typed(&mut model, open);
        assert_eq!(model.handle_key(ctrl('c')), Some(Action::Quit), "{open}");
        press(&mut model, KeyCode::Esc);
    }
    assert_eq!(model.handle_key(ctrl('z')), Some(Action::Suspend));
    assert_eq!(model.handle_key(ctrl('q')), None);
}

/// An approval takes two different keys, so that a held or doubled key gives none; pasted text counts as none.
#[test]
fn a_decision_is_shown_and_confirmed_with_another_key() {
    let mut model = model(&["a"], &[new_entry("one", "x"), new_entry("two", "x")]);
    assert_eq!(typed(&mut model, "yyyy"), None);
    typed(&mut model, "y");
    mark_as_read(&mut model);
    let Some(Action::Decide(Decision::Approve(id))) = press(&mut model, KeyCode::Enter) else {
        panic!("it is a yes");
    };
    assert_eq!(id, "one");
    assert_eq!(model.dialog, None);

    press(&mut model, KeyCode::Tab);
    typed(&mut model, "jn");
    mark_as_read(&mut model);
    let Some(Action::Decide(Decision::Deny(id))) = press(&mut model, KeyCode::Enter) else {
        panic!("it is a no");
    };
    assert_eq!(id, "two");

    typed(&mut model, "y");
    assert_eq!(press(&mut model, KeyCode::Esc), None);
    assert_eq!(model.dialog, None, "Esc answers nothing");
    model.handle_paste("y\n\ny\n");
    assert_eq!(model.dialog, None);
}

/// The confirming user has seen the whole text.
#[test]
fn a_text_not_read_to_its_end_cannot_be_approved() {
    let mut model = model(&["a"], &[new_entry("one", "x")]);
    model.page_rows = 10;
    typed(&mut model, "y");
    for above in [0, 10] {
        let dialog = model.dialog.as_mut().unwrap();
        assert_eq!(dialog.scroll_to(25, 10), above);
        assert_eq!(press(&mut model, KeyCode::Enter), None);
    }
    assert_eq!(model.dialog.as_mut().unwrap().scroll_to(25, 10), 15);
    assert!(matches!(
        press(&mut model, KeyCode::Enter),
        Some(Action::Decide(_))
    ));
}

/// Between the sample and the key an entry may be answered elsewhere, or replaced by another of the same name.
#[test]
fn a_decision_is_for_the_displayed_entry() {
    let mut model = model(&["a"], &[new_entry("one", "delete a")]);
    typed(&mut model, "y");
    model.add_sample(new_sample(
        &["a"],
        &[new_entry("zero", "x"), new_entry("one", "delete a")],
    ));
    assert!(model.dialog.is_some(), "others do not matter");
    model.add_sample(new_sample(&["a"], &[new_entry("one", "delete everything")]));
    assert_eq!(model.dialog, None);
    assert!(model.note.as_ref().unwrap().contains("another question"));
    mark_as_read(&mut model);
    assert_eq!(model.selected_pending_index(), 0);

    typed(&mut model, "y");
    model.add_sample(new_sample(&["a"], &[]));
    assert_eq!(model.dialog, None);
    assert!(
        model
            .note
            .as_ref()
            .unwrap()
            .contains("does not wait any more")
    );
    typed(&mut model, "y");
    assert_eq!(
        (model.dialog.is_some(), model.note.as_deref()),
        (false, Some("nothing waits for you"))
    );
}

#[test]
fn entries_that_need_a_text_show_the_command() {
    let mut asked = new_entry("one", "which?");
    asked.options = Some(Vec::new());
    let mut model = model(&["a"], &[asked]);
    typed(&mut model, "y");
    assert!(model.note.as_ref().unwrap().contains("mgp answer one TEXT"));
    assert_eq!(model.dialog, None);
    typed(&mut model, "n");
    assert!(model.dialog.is_some(), "a no is a key");
}

#[test]
fn no_decision_is_sent_while_the_kernel_is_unreachable() {
    let mut model = model(&["a"], &[new_entry("one", "x")]);
    model.set_unreachable("no kernel\u{1b}[2J\nruns");
    assert_eq!(model.unreachable_reason.as_deref(), Some("no kernel"));
    typed(&mut model, "y");
    assert_eq!(model.dialog, None);
    model.add_sample(new_sample(&["a"], &[new_entry("one", "x")]));
    assert_eq!(model.unreachable_reason, None);
    typed(&mut model, "y");
    assert!(model.dialog.is_some());
}

#[test]
fn the_pending_panel_is_shown_while_entries_wait() {
    let mut model = model(&["a"], &[new_entry("one", "x")]);
    press(&mut model, KeyCode::Tab);
    assert_eq!(model.panel, Panel::Pending);
    press(&mut model, KeyCode::Enter);
    assert!(matches!(
        model.dialog.as_ref().unwrap().subject,
        DialogSubject::Entry(_)
    ));
    model.add_sample(new_sample(&["a"], &[]));
    assert_eq!(model.panel, Panel::Servers);
    press(&mut model, KeyCode::Tab);
    assert_eq!(model.panel, Panel::Servers);
}
