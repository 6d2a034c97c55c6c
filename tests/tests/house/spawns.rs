//! Tasks and threads: who starts one, and who knows it.

use std::collections::BTreeSet;

use crate::reader::Package;
use crate::workspace::{Sources, below, sources};

/// The one place that starts tasks, and knows them.
const SUPERVISED: &str = "actors/runtime/src/task.rs";

/// Where a thread is started all the same, and why.
const THREADS: &[(&str, &str)] = &[
    (
        "actors/store/src/audit/startup.rs",
        "it owns the files of the log",
    ),
    (
        "actors/store/src/audit/verification.rs",
        "it is worth less than those of calls",
    ),
    (
        "actors/runtime/src/bounded_output.rs",
        "two outputs of a program are read at once, each to its bound",
    ),
    ("actors/store/src/journal.rs", "it owns the journal"),
    ("actors/store/src/views.rs", "it owns the views"),
    ("actors/tools/src/search/worker.rs", "it asks the model"),
    ("actors/tools/src/search/model/process.rs", "the same"),
    (
        "actors/tools/src/search/model/serve.rs",
        "in the process of the model",
    ),
    (
        "actors/servers/src/server/spawner.rs",
        "processes end with the thread that started them",
    ),
];

/// Folders that start what they like, and why.
const APART: &[(&str, &str)] = &[
    ("kernel/src/cli/", "the command line has no actors"),
    (
        "kernel/src/demo/",
        "the demo server is a process of its own",
    ),
];

/// No task is left to itself: what starts one knows it, ends it with its owner and answers its panic.
#[test]
fn tasks_are_started_in_one_place() {
    let strays = strays(&sources());
    assert!(strays.is_empty(), "{}", strays.join("\n"));
}

#[test]
fn a_stray_task_is_found_however_it_is_started() {
    let planted = |text: &str| {
        let at = |file: &str| (file.to_owned(), text.to_owned());
        strays(&Sources::from([
            at("actors/calls/src/a.rs"),
            at(SUPERVISED),
        ]))
        .len()
    };
    assert_eq!(planted("fn f() { tokio::spawn(async {}); }"), 1);
    assert_eq!(
        planted("use tokio::{spawn, time}; fn f() { spawn(g()) }"),
        1
    );
    assert_eq!(
        planted("use tokio::task; fn f() { task::spawn_blocking(g) }"),
        1
    );
    assert_eq!(
        planted("fn f() { let t = std::thread::Builder::new(); }"),
        1
    );
    let owner = "actors/store/src/journal.rs".to_owned();
    let both = "fn f() { std::thread::Builder::new(); tokio::spawn(g()); }".to_owned();
    let found = strays(&Sources::from([(owner, both)]));
    assert_eq!(found, ["actors/store/src/journal.rs: tokio::spawn"]);
    assert_eq!(
        planted("#[cfg(test)] mod tests { fn f() { tokio::spawn(g()); } }"),
        0
    );
    assert_eq!(
        planted("fn f(set: &mut JoinSet<()>) { set.spawn(g()); }"),
        0
    );
}

/// Every start of a task or thread in the actors and the kernel that stands elsewhere.
fn strays(sources: &Sources) -> Vec<String> {
    let mut found = Vec::new();
    for folder in folders(sources) {
        for module in Package::read(below(&folder, sources)).modules.values() {
            let file = format!("{folder}/{}", module.file);
            let apart = APART.iter().any(|(place, _)| file.starts_with(place));
            if apart || file == SUPERVISED {
                continue;
            }
            let threads = THREADS.iter().any(|(place, _)| file == *place);
            let uses = module.uses.iter().map(|import| &import.path);
            let starts = uses
                .chain(&module.paths)
                .filter(|path| starts_task(path) || starts_thread(path) && !threads);
            found.extend(starts.map(|path| format!("{file}: {}", path.join("::"))));
        }
    }
    found
}

/// The source folders of the actors and the kernel.
fn folders(sources: &Sources) -> BTreeSet<String> {
    let all = sources.keys().filter_map(|path| path.split_once("/src/"));
    let folders = all.map(|(package, _)| package);
    folders
        .filter(|package| package.starts_with("actors") || *package == "kernel")
        .map(|package| format!("{package}/src"))
        .collect()
}

fn starts_task(path: &[String]) -> bool {
    path.windows(2).any(|pair| match pair[1].as_str() {
        "spawn" => matches!(pair[0].as_str(), "tokio" | "task"),
        "spawn_blocking" | "spawn_local" => true,
        _ => false,
    })
}

fn starts_thread(path: &[String]) -> bool {
    let starts = |pair: &[String]| matches!(pair[1].as_str(), "spawn" | "Builder");
    path.windows(2)
        .any(|pair| pair[0] == "thread" && starts(pair))
}
