//! `mgp status --tree`: the running actors and tasks.

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::{ActorNode, RunningTree, Tree};
use serde_json::json;

use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::print_line;
use crate::cli::text_format::sanitize_line;

pub(super) fn show(context: &CliContext) -> Result<(), Failure> {
    let answer = context.call(Tree::METHOD, &json!({}), "asking the kernel")?;
    context.print_answer(&answer, |running: RunningTree| {
        print_line(render_tree(&running).trim_end())
    })
}

fn render_tree(running: &RunningTree) -> String {
    let mut text = String::new();
    render_actor(&mut text, &running.actors, 0);
    text += "\ntasks\n";
    for (name, count) in &running.tasks {
        text += &format!("  {}  {} running", sanitize_line(name), count.running);
        text += &match count.panicked {
            0 => "\n".to_owned(),
            panicked => format!(", {panicked} panicked\n"),
        };
    }
    text
}

fn render_actor(text: &mut String, node: &ActorNode, depth: usize) {
    *text += &format!(
        "{:width$}{}\n",
        "",
        sanitize_line(&node.name),
        width = 2 * depth
    );
    for child in &node.under {
        render_actor(text, child, depth + 1);
    }
}

#[cfg(test)]
mod tests {
    use mgp_protocol::mgp::kernel::TaskCount;

    use super::*;

    #[test]
    fn the_tree_is_printed_line_by_line() {
        let node = |name: &str, under: Vec<ActorNode>| ActorNode {
            name: name.into(),
            under,
        };
        let server = node("server:demo", vec![node("instance", Vec::new())]);
        let task = TaskCount {
            running: 1,
            panicked: 2,
        };
        let running = RunningTree {
            actors: node("tree", vec![node("access", Vec::new()), server]),
            tasks: [("catalog.merge".to_owned(), task)].into(),
        };
        let want = "tree\n  access\n  server:demo\n    instance\n\n\
                    tasks\n  catalog.merge  1 running, 2 panicked\n";
        assert_eq!(render_tree(&running), want);
    }
}
