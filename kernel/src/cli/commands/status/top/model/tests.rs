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

fn look(servers: &[&str], questions: &[Entry]) -> TopLook {
    let mut look = TopLook::default();
    let servers = servers.iter().map(|id| Server {
        id: (*id).into(),
        state: "connected".into(),
        ..Server::default()
    });
    look.status.servers = servers.collect();
    look.pending.pending = questions.to_vec();
    look
}

fn model(servers: &[&str], questions: &[Entry]) -> TopModel {
    let mut model = TopModel::default();
    model.take(look(servers, questions));
    model
}

fn hit(model: &mut TopModel, code: KeyCode) -> Option<TopWish> {
    model.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn typed(model: &mut TopModel, keys: &str) -> Option<TopWish> {
    let wishes = keys.chars().map(|c| hit(model, KeyCode::Char(c)));
    wishes.collect::<Vec<_>>().pop().flatten()
}

/// What the dialog is when it was on the screen to its end.
fn drawn(model: &mut TopModel) {
    if let Some(dialog) = &mut model.dialog {
        dialog.scrolled(5, 10);
    }
}

#[test]
fn a_marked_server_stays_marked_wherever_it_moves() {
    let mut model = model(&["a", "b", "c"], &[]);
    typed(&mut model, "Njj");
    assert_eq!(model.marked_server(), 2);
    typed(&mut model, "r");
    assert_eq!((model.marked_server(), &*model.rows[0].id), (0, "c"));
    model.take(look(&["a", "b", "c", "d"], &[]));
    assert_eq!(model.marked_server(), 1);
    model.take(look(&["a", "b"], &[]));
    assert_eq!(model.marked_server(), 0, "it is not there any more");
    typed(&mut model, "G");
    assert_eq!(model.rows[model.marked_server()].id, "a");
    model.page = 1;
    hit(&mut model, KeyCode::PageUp);
    assert_eq!(model.marked_server(), 0);
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
    assert!(!model.typing);
    assert_eq!(hit(&mut model, KeyCode::Esc), None);
    assert_eq!(model.rows.len(), 2, "Esc takes the filter back first");
    typed(&mut model, "/");
    typed(&mut model, &"x".repeat(500));
    assert_eq!(model.filter.len(), FILTER);
    hit(&mut model, KeyCode::Esc);
    assert_eq!((model.filter.as_str(), model.typing), ("", false));
    assert_eq!(hit(&mut model, KeyCode::Esc), Some(TopWish::Quit));
}

#[test]
fn whatever_is_open_ctrl_c_leaves() {
    let ctrl = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    let mut model = model(&["a"], &[question("q", "x")]);
    assert_eq!(typed(&mut model, "q"), Some(TopWish::Quit));
    for open in ["/ab", "?", "y"] {
        typed(&mut model, open);
        assert_eq!(model.key(ctrl('c')), Some(TopWish::Quit), "{open}");
        hit(&mut model, KeyCode::Esc);
    }
    assert_eq!(model.key(ctrl('z')), Some(TopWish::Suspend));
    assert_eq!(model.key(ctrl('q')), None);
}

/// A yes is two keys that are not the same, so that none is given by a key that is held or hit twice; a text
/// that is pasted is none.
#[test]
fn an_answer_is_shown_first_and_confirmed_with_another_key() {
    let mut model = model(&["a"], &[question("one", "x"), question("two", "x")]);
    assert_eq!(typed(&mut model, "yyyy"), None);
    typed(&mut model, "y");
    drawn(&mut model);
    let Some(TopWish::Answer(TopAnswer::Approve(id))) = hit(&mut model, KeyCode::Enter) else {
        panic!("it is a yes");
    };
    assert_eq!(id, "one");
    assert_eq!(model.dialog, None);

    hit(&mut model, KeyCode::Tab);
    typed(&mut model, "jn");
    drawn(&mut model);
    let Some(TopWish::Answer(TopAnswer::Deny(id))) = hit(&mut model, KeyCode::Enter) else {
        panic!("it is a no");
    };
    assert_eq!(id, "two");

    typed(&mut model, "y");
    assert_eq!(hit(&mut model, KeyCode::Esc), None);
    assert_eq!(model.dialog, None, "Esc answers nothing");
    model.paste("y\n\ny\n");
    assert_eq!(model.dialog, None);
}

/// Who confirms has had all of it on the screen.
#[test]
fn what_was_not_read_to_its_end_is_not_agreed_to() {
    let mut model = model(&["a"], &[question("one", "x")]);
    model.page = 10;
    typed(&mut model, "y");
    for above in [0, 10] {
        let dialog = model.dialog.as_mut().unwrap();
        assert_eq!(dialog.scrolled(25, 10), above);
        assert_eq!(hit(&mut model, KeyCode::Enter), None);
    }
    assert_eq!(model.dialog.as_mut().unwrap().scrolled(25, 10), 15);
    assert!(matches!(
        hit(&mut model, KeyCode::Enter),
        Some(TopWish::Answer(_))
    ));
}

/// Between the look and the key a question may be answered elsewhere, or another may come under its name.
#[test]
fn an_answer_is_for_what_was_shown() {
    let mut model = model(&["a"], &[question("one", "delete a")]);
    typed(&mut model, "y");
    model.take(look(
        &["a"],
        &[question("zero", "x"), question("one", "delete a")],
    ));
    assert!(model.dialog.is_some(), "others do not matter");
    model.take(look(&["a"], &[question("one", "delete everything")]));
    assert_eq!(model.dialog, None);
    assert!(model.note.as_ref().unwrap().contains("another question"));
    drawn(&mut model);
    assert_eq!(model.marked_question(), 0);

    typed(&mut model, "y");
    model.take(look(&["a"], &[]));
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
    model.lose("no kernel\u{1b}[2J\nruns");
    assert_eq!(model.gone.as_deref(), Some("no kernel"));
    typed(&mut model, "y");
    assert_eq!(model.dialog, None);
    model.take(look(&["a"], &[question("one", "x")]));
    assert_eq!(model.gone, None);
    typed(&mut model, "y");
    assert!(model.dialog.is_some());
}

#[test]
fn the_panel_of_what_waits_is_there_while_something_waits() {
    let mut model = model(&["a"], &[question("one", "x")]);
    hit(&mut model, KeyCode::Tab);
    assert_eq!(model.panel, TopPanel::Questions);
    hit(&mut model, KeyCode::Enter);
    assert!(matches!(
        model.dialog.as_ref().unwrap().about,
        TopSubject::Question(_)
    ));
    model.take(look(&["a"], &[]));
    assert_eq!(model.panel, TopPanel::Servers);
    hit(&mut model, KeyCode::Tab);
    assert_eq!(model.panel, TopPanel::Servers);
}
