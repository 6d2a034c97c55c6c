//! The supervision tree as ARCHITECTURE.md draws it, and whether a running one is like it.

use std::fs;

use mgp_tests::harness::{Kernel, Program};
use serde_json::{Value, json};

use crate::workspace::root;

/// One actor of a tree, with those under it.
#[derive(Debug, PartialEq, Eq)]
struct Drawn {
    name: String,
    /// `…` after the name: any number of these, or none.
    many: bool,
    under: Vec<Drawn>,
}

/// Every actor in the picture has one parent and one line.
#[test]
fn the_tree_in_the_architecture_can_be_read() {
    let tree = drawn(&picture());
    assert_eq!(tree.name, "tree");
    assert!(tree.under.len() > 5, "{tree:#?}");
    let server = tree.under.iter().find(|child| child.name == "server");
    assert!(server.is_some_and(|server| server.many), "{tree:#?}");
}

/// What `mgp status --tree` tells of a kernel with a server is what is drawn.
#[tokio::test]
async fn a_kernel_runs_as_it_is_drawn() {
    let server = Program::fixture(&[]).entry("one");
    let kernel = Kernel::start(&server).await;
    kernel.connected(&["one"]).await;
    let told = kernel.mgp_json(&["status", "--tree"]).await;
    let found = differences(&drawn(&picture()), &told["actors"]);
    assert!(found.is_empty(), "{found:#?} in {told:#}");
    let under = told["actors"]["under"].as_array().unwrap();
    assert!(under.contains(&json!({"name": "server:one"})), "{told:#}");
    assert!(
        told["tasks"]
            .as_object()
            .unwrap()
            .contains_key("permissions.expiry")
    );
}

#[test]
fn a_picture_is_read_as_it_is_drawn() {
    let picture = "\
tree ─┬─ guard       the process that ends all
      ├─ agents ─┬─ connection…   one per line
      │          └─ session…      one per ─ session
      └─ server…     one per server
         └─ instance…   the same
";
    let leaf = |name: &str, many| Drawn {
        name: name.to_owned(),
        many,
        under: Vec::new(),
    };
    let agents = Drawn {
        under: vec![leaf("connection", true), leaf("session", true)],
        ..leaf("agents", false)
    };
    let server = Drawn {
        under: vec![leaf("instance", true)],
        ..leaf("server", true)
    };
    let tree = Drawn {
        under: vec![leaf("guard", false), agents, server],
        ..leaf("tree", false)
    };
    assert_eq!(drawn(picture), tree);
}

#[test]
fn a_tree_that_runs_otherwise_is_told() {
    let picture = "tree ─┬─ guard\n      └─ server…\n         └─ instance…\n";
    let tree = drawn(picture);
    let guard = json!({"name": "guard"});
    let server = json!({"name": "server:a", "under": [{"name": "instance:b"}]});
    let runs = |under: Value| differences(&tree, &json!({"name": "tree", "under": under}));
    assert!(runs(json!([guard, server, server])).is_empty());
    assert!(runs(json!([guard])).is_empty());
    assert_eq!(
        runs(json!([server])),
        ["tree/guard is drawn and does not run"]
    );
    assert_eq!(
        runs(json!([guard, guard])),
        ["tree/guard is drawn once and runs 2 times"]
    );
    let stray = json!([guard, {"name": "server:a", "under": [{"name": "errand"}]}]);
    assert_eq!(runs(stray), ["tree/server/errand runs and is not drawn"]);
}

/// The block of ARCHITECTURE.md that begins with the root of the tree.
fn picture() -> String {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut blocks = text.split("```").skip(1).step_by(2);
    let block = blocks.find(|block| block.trim_start().starts_with("tree ─"));
    block.unwrap().trim_start_matches('\n').to_owned()
}

/// Reads a picture: `─┬─` opens a column under the name before it, `├─` and `└─` continue the column
/// they stand in, or hang under the name that begins there.
fn drawn(picture: &str) -> Drawn {
    let mut flat: Vec<(Option<usize>, String)> = Vec::new();
    let mut columns: Vec<(usize, usize)> = Vec::new();
    for line in picture.lines() {
        let signs: Vec<char> = line.chars().collect();
        let mut on_line = if line.starts_with(char::is_alphabetic) {
            Some(add(&mut flat, &mut columns, None, &signs, 0))
        } else {
            None
        };
        for (at, sign) in signs.iter().enumerate() {
            let under = match sign {
                '┬' => on_line,
                '├' | '└' => columns.iter().rev().find(|c| c.0 == at).map(|c| c.1),
                _ => continue,
            };
            let Some(parent) = under.filter(|_| signs.get(at + 1) == Some(&'─')) else {
                panic!("nothing stands above column {at} of {line}");
            };
            columns.retain(|(column, _)| *column <= at);
            columns.push((at, parent));
            on_line = Some(add(&mut flat, &mut columns, Some(parent), &signs, at + 3));
        }
    }
    grown(&flat, 0)
}

/// Notes the name that begins at a column, and that others may hang under it.
fn add(
    flat: &mut Vec<(Option<usize>, String)>,
    columns: &mut Vec<(usize, usize)>,
    parent: Option<usize>,
    line: &[char],
    at: usize,
) -> usize {
    let name = line[at..].iter().take_while(|c| !c.is_whitespace());
    flat.push((parent, name.collect()));
    columns.push((at, flat.len() - 1));
    flat.len() - 1
}

fn grown(flat: &[(Option<usize>, String)], at: usize) -> Drawn {
    let own = (0..flat.len()).filter(|child| flat[*child].0 == Some(at));
    let name = flat[at].1.as_str();
    Drawn {
        name: name.trim_end_matches('…').to_owned(),
        many: name.ends_with('…'),
        under: own.map(|child| grown(flat, child)).collect(),
    }
}

/// What runs and is not drawn, and what is drawn and does not run. A dump names each actor by its kind,
/// and after a colon by which of them it is.
fn differences(drawn: &Drawn, running: &Value) -> Vec<String> {
    let empty = Vec::new();
    let running = running["under"].as_array().unwrap_or(&empty);
    let mut found = Vec::new();
    for actor in running {
        let known = drawn.under.iter().find(|child| child.name == kind(actor));
        match known {
            Some(child) => found.extend(differences(child, actor)),
            None => found.push(format!("{} runs and is not drawn", kind(actor))),
        }
    }
    for child in drawn.under.iter().filter(|child| !child.many) {
        match running
            .iter()
            .filter(|actor| kind(actor) == child.name)
            .count()
        {
            1 => {}
            0 => found.push(format!("{} is drawn and does not run", child.name)),
            n => found.push(format!("{} is drawn once and runs {n} times", child.name)),
        }
    }
    let here = &drawn.name;
    found
        .into_iter()
        .map(|what| format!("{here}/{what}"))
        .collect()
}

fn kind(actor: &Value) -> &str {
    let name = actor["name"].as_str().unwrap_or_default();
    name.split(':').next().unwrap_or(name)
}
