use clap::{CommandFactory, Parser};

use super::*;
use crate::cli::failure::{Failure, KernelAbsence};

fn typed(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

#[test]
fn the_command_tree_is_valid() {
    Cli::command().debug_assert();
}

#[test]
fn commands_are_read() {
    let up = typed("mgp --config a.toml up --detach").unwrap();
    assert_eq!(
        up.options.config.as_deref(),
        Some(std::path::Path::new("a.toml"))
    );
    assert!(matches!(
        up.command,
        Invocation::Command(Command::Up(Up { detach: true, .. }))
    ));
    let stdio = typed("mgp stdio --agent me --server files").unwrap();
    assert!(matches!(
        stdio.command,
        Invocation::Command(Command::Stdio(Stdio {
            agent: Some(agent),
            server: Some(_),
            of: None,
            set: None,
        })) if agent == "me"
    ));
    let add = typed("mgp agents add alice --expires 30d").unwrap().command;
    assert!(matches!(
        add,
        Invocation::Command(Command::Agents(Agents::Add(AddAgent {
            expires: Some(2_592_000),
            ..
        })))
    ));
    for wrong in ["30", "d", "0d", "1w", "-1d", "18446744073709551615d"] {
        assert!(
            typed(&format!("mgp agents add alice --expires {wrong}")).is_err(),
            "{wrong}"
        );
    }
    let logs = typed("mgp servers logs files -f -n 5 --json").unwrap();
    assert!(logs.options.json);
    assert!(matches!(
        logs.command,
        Invocation::Command(Command::Servers(Servers::Logs(Logs {
            follow: true,
            lines: 5,
            ..
        })))
    ));
    assert!(matches!(
        typed("mgp __guard").unwrap().command,
        Invocation::Internal(Internal::Guard)
    ));
    assert!(matches!(
        typed("mgp __demo-server").unwrap().command,
        Invocation::Internal(Internal::DemoServer(_))
    ));
}

#[test]
fn a_server_is_a_program_or_an_address_and_not_both() {
    let Invocation::Command(Command::Servers(Servers::Add(add))) =
        typed("mgp servers add files --env KEY -- npx -y files --verbose")
            .unwrap()
            .command
    else {
        panic!("it is an add");
    };
    assert_eq!(add.command, ["npx", "-y", "files", "--verbose"]);
    assert!(typed("mgp servers add docs --url https://h --header A=b").is_ok());
    assert!(typed("mgp servers add shop --transport lite --url https://h/v1/").is_ok());
    for wrong in [
        "mgp servers add x --as y -- npx",
        "mgp servers add x --transport lite -- npx",
        "mgp servers add x --transport lit --url https://h",
        "mgp servers add x --url https://h -- npx",
        "mgp servers add x --header A=b -- npx",
        "mgp servers add x --trust absolute -- npx",
    ] {
        assert_eq!(typed(wrong).unwrap_err().exit_code(), 2, "{wrong}");
    }
}

#[test]
fn arguments_of_a_tool_come_in_one_form() {
    assert!(typed("mgp tools call demo:time a=1 b=-2").is_ok());
    assert!(typed("mgp tools call demo:time --json-args {}").is_ok());
    assert!(typed("mgp tools call demo:time a=1 --json-args {}").is_err());
}

/// Every line of every `Examples:` is a valid command line.
#[test]
fn the_examples_in_the_help_are_valid() {
    let mut seen = 0;
    let mut commands = vec![Cli::command()];
    while let Some(command) = commands.pop() {
        let help = command
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        for line in help.lines().filter(|line| line.starts_with("  mgp ")) {
            let words = line.split(['#', '|']).next().unwrap().replace('\'', "");
            // Quoted spaces do not matter here.
            let words = words
                .replace("fn main", "x")
                .replace("Bearer ", "")
                .replace("only by hand", "x")
                .replace("moved to a new disk", "x")
                .replace("look for a text in all files of a folder", "x")
                .replace("path, \"~", "path,\"~")
                .replace("\": 5", "\":5");
            assert!(typed(&words).is_ok(), "{line}");
            seen += 1;
        }
        commands.extend(command.get_subcommands().cloned());
    }
    assert!(seen >= 10, "{seen}");
}

/// A wrapped line cannot be pasted; clap wraps at 100 columns.
#[test]
fn no_example_in_the_help_is_wrapped() {
    let mut commands = vec![Cli::command()];
    while let Some(command) = commands.pop() {
        let help = [command.get_after_help(), command.get_after_long_help()];
        let help = help.into_iter().flatten().map(ToString::to_string);
        for line in help.collect::<String>().lines() {
            let columns = line.chars().count();
            assert!(
                !line.starts_with("  ") || columns <= 100,
                "{columns}: {line}"
            );
        }
        commands.extend(command.get_subcommands().cloned());
    }
}

/// Every command of the page about clusters, in its sessions and in its text, is valid.
#[test]
fn the_commands_of_the_page_about_clusters_are_valid() {
    let page = include_str!("../../../../docs/cluster.md");
    let sessions = page.lines().filter_map(|line| line.split_once("$ mgp "));
    let sessions = sessions.map(|(_, words)| words);
    let in_text = page.split('`').skip(1).step_by(2);
    let in_text = in_text.filter_map(|code| code.strip_prefix("mgp "));
    let mut seen = 0;
    for words in sessions.chain(in_text) {
        let words = words.split('#').next().unwrap().replace('\'', "");
        assert!(typed(&format!("mgp {words}")).is_ok(), "mgp {words}");
        seen += 1;
    }
    assert!(seen >= 20, "{seen}");
}

/// `mgp --help` is one screen, and names every command once.
#[test]
fn the_help_names_every_command_on_one_screen() {
    let help = Cli::command().render_help().to_string();
    assert!(help.lines().count() <= 48, "{}", help.lines().count());
    let titles = help
        .lines()
        .filter(|line| line.starts_with("  ") && !line.trim_start().starts_with('-'));
    let titles = titles
        .filter_map(|line| line.get(2..28))
        .filter(|title| !title.starts_with(' '));
    let mut named: Vec<&str> = titles
        .flat_map(|title| title.split(','))
        .map(str::trim)
        .collect();
    let command = Cli::command();
    let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
    let mut expected: Vec<&str> = shown.map(clap::Command::get_name).collect();
    named.sort_unstable();
    expected.sort_unstable();
    assert_eq!(named, expected);
}

#[test]
fn exit_codes_are_the_documented_ones() {
    let codes = [
        (Failure::Other("x".into()), 1),
        (Failure::Usage("x".into()), 2),
        (
            Failure::NotRunning(KernelAbsence::NotListening("/s".into())),
            3,
        ),
        (Failure::ToolError, 4),
        (Failure::Interrupted, 130),
    ];
    for (failure, code) in codes {
        assert_eq!(failure.exit_code(), code);
        assert!(EXIT_CODES.contains(&format!(" {code} ")), "{code}");
    }
    let said = Failure::NotRunning(KernelAbsence::NotListening("/run/mgp.sock".into())).to_string();
    assert_eq!(
        said,
        "no kernel is running at /run/mgp.sock: start one with `mgp up`"
    );
}

/// A ticket admits a node, so its options must be right.
#[test]
fn nodes_are_invited_and_join_by_a_ticket() {
    let invite = typed("mgp nodes invite --role admin --for 1h --address nas.lan:7332");
    let Invocation::Command(Command::Nodes(Nodes::Invite(invite))) = invite.unwrap().command else {
        panic!("it is an invitation");
    };
    assert_eq!((invite.role.as_str(), invite.during), ("admin", 3600));
    assert!(!invite.approved);
    let usual = typed("mgp nodes invite").unwrap().command;
    assert!(matches!(
        usual,
        Invocation::Command(Command::Nodes(Nodes::Invite(Invite { during: 900, role, .. })))
            if role == "member"
    ));
    for good in [
        "mgp nodes join mgp1-abc --name desk",
        "mgp nodes join -",
        "mgp nodes join --no-wait",
        "mgp approve bafog-tulik-zonub",
        "mgp nodes rename attic --node nas",
        "mgp cluster status --json",
        "mgp shares add files --to node:desk --tools read_*",
        "mgp shares remove files",
        "mgp shares list",
        "mgp lan on",
    ] {
        assert!(typed(good).is_ok(), "{good}");
    }
    for wrong in [
        "mgp nodes invite --role owner",
        "mgp nodes join --name desk",
        "mgp nodes remove",
        "mgp shares add files",
        "mgp shares add files --to desk",
        "mgp lan",
    ] {
        assert!(typed(wrong).is_err(), "{wrong}");
    }
}
