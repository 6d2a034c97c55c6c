//! Old spellings of commands: they work until 1.0, and name today's.

use std::process::Output;

use crate::scene;

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The note is on stderr, once; stdout is what the new spelling prints.
#[tokio::test]
async fn an_old_spelling_works_and_names_the_new_one_once() {
    let kernel = scene::kernel().await;
    for (old, new) in [
        (&["grants"][..], &["grants", "list"][..]),
        (&["shares"], &["shares", "list"]),
        (&["node", "id"], &["nodes", "show"]),
        (&["servers", "info", "it"], &["servers", "show", "it"]),
        (&["grant", "local", "it"], &["grants", "add", "local", "it"]),
        (
            &["revoke", "local", "it"],
            &["grants", "remove", "local", "it"],
        ),
    ] {
        let typed_old = kernel.mgp(old).await;
        let typed_new = kernel.mgp(new).await;
        assert_eq!(typed_old.status.code(), Some(0), "{old:?}: {typed_old:?}");
        assert_eq!(typed_new.status.code(), Some(0), "{new:?}: {typed_new:?}");
        assert!(!stderr(&typed_new).contains("is spelled"), "{typed_new:?}");
        let notes = stderr(&typed_old);
        assert_eq!(notes.matches("is spelled").count(), 1, "{old:?}: {notes}");
        let (command, _) = notes.split_once(" now;").unwrap();
        let spelled = command.rsplit_once("is spelled `mgp ").unwrap().1;
        let spelled = spelled.trim_end_matches('`');
        assert!(new.join(" ").starts_with(spelled), "{old:?}: {notes}");
        assert!(!typed_old.stdout.is_empty(), "{old:?}");
    }
    let list = kernel.mgp(&["grants", "list"]).await.stdout;
    assert_eq!(kernel.mgp(&["grants"]).await.stdout, list);
}

/// Programs read stderr, too: with `--json` it holds errors alone.
#[tokio::test]
async fn with_json_an_old_spelling_prints_no_note() {
    let kernel = scene::kernel().await;
    for old in [
        &["node", "id", "--json"][..],
        &["--json", "shares"],
        &["servers", "--json", "info", "it"],
    ] {
        let typed = kernel.mgp(old).await;
        assert_eq!(typed.status.code(), Some(0), "{old:?}: {typed:?}");
        assert_eq!(stderr(&typed), "", "{old:?}");
        let printed: serde_json::Value = serde_json::from_slice(&typed.stdout).unwrap();
        assert!(printed.is_object(), "{old:?}: {printed}");
    }
}

/// Where it fails, the note and the error stand on lines of their own.
#[tokio::test]
async fn an_old_spelling_fails_as_the_new_one_does() {
    let kernel = scene::kernel().await;
    let old = kernel.mgp(&["servers", "info", "ti"]).await;
    let new = kernel.mgp(&["servers", "show", "ti"]).await;
    assert_eq!((old.status.code(), new.status.code()), (Some(2), Some(2)));
    let (note, error) = stderr(&old)
        .split_once('\n')
        .map(|(note, error)| (note.to_owned(), error.to_owned()))
        .unwrap();
    assert!(note.contains("`mgp servers show`"), "{note}");
    assert_eq!(error, stderr(&new));
}
