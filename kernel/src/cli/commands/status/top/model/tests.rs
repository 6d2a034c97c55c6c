use mgp_protocol::mgp::approvals::{Entry, Subject};
use mgp_protocol::mgp::servers::Server;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;

fn question(id: &str, text: &str) -> Entry {
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

fn look(servers: &[&str], questions: &[Entry]) -> Sample {
    let mut look = Sample::default();
    let servers = servers.iter().map(|id| Server {
        id: (*id).into(),
        state: "connected".into(),
        ..Server::default()
    });
    look.status.servers = servers.collect();
    look.pending.pending = questions.to_vec();
    look
}

fn model(servers: &[&str], questions: &[Entry]) -> Model {
    let mut model = Model::default();
    model.add_sample(look(servers, questions));
    model
}

fn hit(model: &mut Model, code: KeyCode) -> Option<Action> {
    model.handle_key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn typed(model: &mut Model, keys: &str) -> Option<Action> {
    let wishes = keys.chars().map(|c| hit(model, KeyCode::Char(c)));
    wishes.collect::<Vec<_>>().pop().flatten()
}

/// What the dialog is when it was on the screen to its end.
fn drawn(model: &mut Model) {
    if let Some(dialog) = &mut model.dialog {
        dialog.scroll_to(5, 10);
    }
}

#[test]
fn a_marked_server_stays_marked_wherever_it_moves() {
    let mut model = model(&["a", "b", "c"], &[]);
    typed(&mut model, "Njj");
    assert_eq!(model.selected_server_index(), 2);
    typed(&mut model, "r");
    assert_eq!(
        (model.selected_server_index(), &*model.rows[0].id),
        (0, "c")
    );
    model.add_sample(look(&["a", "b", "c", "d"], &[]));
    assert_eq!(model.selected_server_index(), 1);
    model.add_sample(look(&["a", "b"], &[]));
    assert_eq!(model.selected_server_index(), 0, "it is not there any more");
    typed(&mut model, "G");
    assert_eq!(model.rows[model.selected_server_index()].id, "a");
    model.page_rows = 1;
    hit(&mut model, KeyCode::PageUp);
    assert_eq!(model.selected_server_index(), 0);
    let mut none = super::tests::model(&[], &[]);
    typed(&mut none, "jkGg");
    hit(&mut none, KeyCode::Enter);
    assert_eq!(none.dialog, None);
}

#[test]
fn a_filter_is_typed_and_taken_back() {
    let mut model = model(&["files", "git"], &[]);
    typed(&mut model, "/gitq");
    assert!(model.rows.is_empty(), "q is a letter of it");
    hit(&mut model, KeyCode::Backspace);
    assert_eq!(model.rows.len(), 1);
    hit(&mut model, KeyCode::Enter);
    assert!(!model.is_filter_focused);
    assert_eq!(hit(&mut model, KeyCode::Esc), None);
    assert_eq!(model.rows.len(), 2, "Esc takes the filter back first");
    typed(&mut model, "/");
    typed(&mut model, &"x".repeat(500));
    assert_eq!(model.filter.len(), FILTER_LENGTH_MAX);
    hit(&mut model, KeyCode::Esc);
    assert_eq!(
        (model.filter.as_str(), model.is_filter_focused),
        ("", false)
    );
    assert_eq!(hit(&mut model, KeyCode::Esc), Some(Action::Quit));
}

#[test]
fn whatever_is_open_ctrl_c_leaves() {
    let ctrl = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    let mut model = model(&["a"], &[question("q", "x")]);
    assert_eq!(typed(&mut model, "q"), Some(Action::Quit));
    for open in ["/ab", "?", "y"] {
        typed(&mut model, open);
        assert_eq!(model.handle_key(ctrl('c')), Some(Action::Quit), "{open}");
        hit(&mut model, KeyCode::Esc);
    }
    assert_eq!(model.handle_key(ctrl('z')), Some(Action::Suspend));
    assert_eq!(model.handle_key(ctrl('q')), None);
}

/// A yes is two keys that are not the same, so that none is given by a key that is held or hit twice; a text
/// that is pasted is none.
#[test]
fn an_answer_is_shown_first_and_confirmed_with_another_key() {
    let mut model = model(&["a"], &[question("one", "x"), question("two", "x")]);
    assert_eq!(typed(&mut model, "yyyy"), None);
    typed(&mut model, "y");
    drawn(&mut model);
    let Some(Action::Decide(Decision::Approve(id))) = hit(&mut model, KeyCode::Enter) else {
        panic!("it is a yes");
    };
    assert_eq!(id, "one");
    assert_eq!(model.dialog, None);

    hit(&mut model, KeyCode::Tab);
    typed(&mut model, "jn");
    drawn(&mut model);
    let Some(Action::Decide(Decision::Deny(id))) = hit(&mut model, KeyCode::Enter) else {
        panic!("it is a no");
    };
    assert_eq!(id, "two");

    typed(&mut model, "y");
    assert_eq!(hit(&mut model, KeyCode::Esc), None);
    assert_eq!(model.dialog, None, "Esc answers nothing");
    model.handle_paste("y\n\ny\n");
    assert_eq!(model.dialog, None);
}

/// Who confirms has had all of it on the screen.
#[test]
fn what_was_not_read_to_its_end_is_not_agreed_to() {
    let mut model = model(&["a"], &[question("one", "x")]);
    model.page_rows = 10;
    typed(&mut model, "y");
    for above in [0, 10] {
        let dialog = model.dialog.as_mut().unwrap();
        assert_eq!(dialog.scroll_to(25, 10), above);
        assert_eq!(hit(&mut model, KeyCode::Enter), None);
    }
    assert_eq!(model.dialog.as_mut().unwrap().scroll_to(25, 10), 15);
    assert!(matches!(
        hit(&mut model, KeyCode::Enter),
        Some(Action::Decide(_))
    ));
}

/// Between the look and the key a question may be answered elsewhere, or another may come under its name.
#[test]
fn an_answer_is_for_what_was_shown() {
    let mut model = model(&["a"], &[question("one", "delete a")]);
    typed(&mut model, "y");
    model.add_sample(look(
        &["a"],
        &[question("zero", "x"), question("one", "delete a")],
    ));
    assert!(model.dialog.is_some(), "others do not matter");
    model.add_sample(look(&["a"], &[question("one", "delete everything")]));
    assert_eq!(model.dialog, None);
    assert!(model.note.as_ref().unwrap().contains("another question"));
    drawn(&mut model);
    assert_eq!(model.selected_pending_index(), 0);

    typed(&mut model, "y");
    model.add_sample(look(&["a"], &[]));
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
fn what_takes_a_text_shows_the_command() {
    let mut asked = question("one", "which?");
    asked.options = Some(Vec::new());
    let mut model = model(&["a"], &[asked]);
    typed(&mut model, "y");
    assert!(model.note.as_ref().unwrap().contains("mgp answer one TEXT"));
    assert_eq!(model.dialog, None);
    typed(&mut model, "n");
    assert!(model.dialog.is_some(), "a no is a key");
}

#[test]
fn nothing_is_answered_while_the_kernel_is_away() {
    let mut model = model(&["a"], &[question("one", "x")]);
    model.set_unreachable("no kernel\u{1b}[2J\nruns");
    assert_eq!(model.unreachable_reason.as_deref(), Some("no kernel"));
    typed(&mut model, "y");
    assert_eq!(model.dialog, None);
    model.add_sample(look(&["a"], &[question("one", "x")]));
    assert_eq!(model.unreachable_reason, None);
    typed(&mut model, "y");
    assert!(model.dialog.is_some());
}

#[test]
fn the_panel_of_what_waits_is_there_while_something_waits() {
    let mut model = model(&["a"], &[question("one", "x")]);
    hit(&mut model, KeyCode::Tab);
    assert_eq!(model.panel, Panel::Pending);
    hit(&mut model, KeyCode::Enter);
    assert!(matches!(
        model.dialog.as_ref().unwrap().subject,
        DialogSubject::Entry(_)
    ));
    model.add_sample(look(&["a"], &[]));
    assert_eq!(model.panel, Panel::Servers);
    hit(&mut model, KeyCode::Tab);
    assert_eq!(model.panel, Panel::Servers);
}
