//! The command line as a person types it.

use std::io::Read;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::process::Output;

use http::header::AUTHORIZATION;
use mgp_tests::harness::handshake::initialize;
use mgp_tests::harness::{Agent, DEADLINE, HttpClient, Kernel, Process, Program};
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect};
use serde_json::{Value, json};

use crate::scene::{self, NEWEST};

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a shell makes of a line.
async fn typed(line: &str) -> Output {
    Program::new("sh", ["-c", line]).output(DEADLINE).await
}

/// `mgp demo`: every line it prints works as printed, on a machine whose usual port is taken, and
/// its end leaves nothing behind.
#[tokio::test]
async fn a_demo_works_as_printed_and_leaves_nothing() {
    // Whoever has it, it is taken.
    let _taken = TcpListener::bind("127.0.0.1:7332");
    let mut demo = Process::start("mgp demo", &Program::ours("mgp", ["demo"]));
    let whole = |said: &str| said.contains("mcpServers").then(|| said.to_owned());
    let said = demo.says("how to go on", DEADLINE, whole).await;
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let line = |part: &str| {
        let found = lines.iter().find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("{part}: {said}"))
    };

    let listed = typed(line("tools list")).await;
    assert!(listed.status.success(), "{}", err(&listed));
    assert!(out(&listed).contains("demo:time"), "{}", out(&listed));
    let time = typed(line("demo:time utc_offset")).await;
    assert!(
        time.status.success() && out(&time).contains("+02:00"),
        "{}",
        out(&time)
    );
    assert!(typed(line("demo:ask_me")).await.status.success());

    let curl = line("curl -s http://");
    let url = curl
        .split_once("curl -s ")
        .unwrap()
        .1
        .split(' ')
        .next()
        .unwrap();
    assert!(!url.contains(":7332/"), "{url}");
    let token = curl
        .split_once("$(cat ")
        .unwrap()
        .1
        .split_once(')')
        .unwrap()
        .0;
    let token = std::fs::read_to_string(token).unwrap();
    assert!(!said.contains(token.trim()));
    let welcome = typed(curl).await;
    assert!(
        out(&welcome).contains("protocolVersion"),
        "{}",
        err(&welcome)
    );
    let mut client = HttpClient::new(url);
    assert_eq!(client.post(initialize(NEWEST, "{}")).await.status, 401);
    client.set(AUTHORIZATION, &format!("Bearer {}", token.trim()));
    assert_eq!(client.post(initialize(NEWEST, "{}")).await.status, 200);

    let config: Value = serde_json::from_str(line("mcpServers")).unwrap();
    let entry = &config["mcpServers"]["mgp"];
    let args: Vec<String> = serde_json::from_value(entry["args"].clone()).unwrap();
    let program = Program::new(entry["command"].as_str().unwrap(), args.clone());
    let mut agent = Agent::over_stdio(&program);
    agent
        .initialize(NEWEST, r#"{"elicitation":{}}"#)
        .await
        .result();
    let name = json!({"action": "accept", "content": {"name": "Ada"}});
    agent.answers("elicitation/create", name);
    assert_eq!(
        agent.call("demo:ask_me", json!({})).await.text(),
        "Hello Ada."
    );
    agent.close().await;

    let folder = std::path::Path::new(&args[1]).parent().unwrap();
    assert!(folder.exists());
    demo.signal(Signal::SIGINT);
    assert!(demo.end(DEADLINE).await.success());
    assert!(!folder.exists());
}

/// Where nothing runs every verb says so, says what to do, and ends with 3.
#[tokio::test]
async fn command_without_a_kernel_exits_with_3_and_how_to_start_one() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("none.sock").display().to_string();
    for verb in [
        &["status"][..],
        &["tools", "list"],
        &["tools", "call", "x:y"],
        &["servers", "list"],
        &["servers", "logs", "x"],
        &["servers", "restart", "x"],
        &["down"],
    ] {
        let mgp = Program::ours("mgp", verb.iter().copied()).env("MGP_SOCKET", &*socket);
        let said = mgp.output(DEADLINE).await;
        assert_eq!(said.status.code(), Some(3), "{verb:?}");
        assert_eq!(out(&said), "", "{verb:?}");
        assert!(
            err(&said).contains("mgp up") && err(&said).contains(&socket),
            "{}",
            err(&said)
        );
        let said = mgp.arg("--json").output(DEADLINE).await;
        let error: Value = serde_json::from_slice(&said.stderr).unwrap();
        assert_eq!(error["error"]["exit_code"], 3, "{verb:?}");
    }
}

/// `mgp status` shows where the kernel is reached and how its servers are.
#[tokio::test]
async fn status_shows_endpoints_and_servers() {
    let kernel = scene::kernel().await;
    let said = out(&kernel.mgp(&["status"]).await);
    assert!(said.contains(kernel.url()), "{said}");
    assert!(
        said.contains(&kernel.socket().display().to_string()),
        "{said}"
    );
    let row = said.lines().find(|line| line.starts_with("it ")).unwrap();
    assert!(row.contains("connected"), "{said}");
    let status = kernel.mgp_json(&["status"]).await;
    assert_eq!(status["pid"], kernel.pid());
    assert_eq!(status["servers"][0]["state"], "connected");
}

/// `mgp tools list|call`: text for people, JSON for programs; every spelling of a name is read, one is
/// printed.
#[tokio::test]
async fn tools_are_listed_and_called() {
    let kernel = scene::kernel().await;
    let listed = out(&kernel.mgp(&["tools", "list"]).await);
    assert!(
        listed.lines().any(|line| line.starts_with("it:echo ")),
        "{listed}"
    );
    let own = out(&kernel.mgp(&["tools", "list", "--server", "it"]).await);
    assert!(
        own.lines().any(|line| line.starts_with("it:echo ")),
        "{own}"
    );
    let as_json = kernel.mgp_json(&["tools", "list"]).await;
    let mut agent = scene::socket_agent(&kernel, "{}").await;
    let list = agent.request("tools/list", json!({})).await.result();
    assert_eq!(as_json["tools"], list["tools"]);

    for name in ["it:echo", "it__echo", "it/echo", "echo"] {
        let called = kernel.mgp(&["tools", "call", name, "text=a = b"]).await;
        assert_eq!(
            (called.status.code(), out(&called)),
            (Some(0), "a = b\n".into()),
            "{name}"
        );
    }
    let sum = ["tools", "call", "it:test_structured", "a=2", "b=40"];
    assert_eq!(kernel.mgp_json(&sum).await["structuredContent"]["sum"], 42);
    let file = kernel.folder().join("arguments.json");
    std::fs::write(&file, r#"{"text": "from a file"}"#).unwrap();
    let from_file = format!("@{}", file.display());
    let called = kernel.mgp(&["tools", "call", "it:echo", &from_file]).await;
    assert_eq!(out(&called), "from a file\n");
    let called = kernel
        .mgp(&[
            "tools",
            "call",
            "it:echo",
            "--json-args",
            r#"{"text":"in a word"}"#,
        ])
        .await;
    assert_eq!(out(&called), "in a word\n");

    let folder = kernel.folder().join("pictures").display().to_string();
    let called = kernel
        .mgp(&["tools", "call", "it:test_image_content", "--out", &folder])
        .await;
    assert!(out(&called).starts_with("saved "), "{}", out(&called));
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().collect();
    assert_eq!(files.len(), 1);
    assert!(
        std::fs::read(files[0].path())
            .unwrap()
            .starts_with(b"\x89PNG")
    );
}

/// The exit code says what became of a call.
#[tokio::test]
async fn exit_code_reports_the_outcome_of_a_call() {
    let kernel = scene::kernel().await;
    for (args, code, words) in [
        (
            &["it:test_error_handling"][..],
            4,
            "intentionally returns an error",
        ),
        (&["it:no_such"], 2, "server it has no tool no_such"),
        (&["it/ecko"], 2, "did you mean it:echo?"),
        (&["ecko"], 2, "did you mean it:echo?"),
        (&["it:protocol_error_job"], 1, "Internal error"),
        (&["it:echo", "text"], 2, "text"),
        (&["it:echo", "--json-args", "{"], 2, ""),
        (&["it:test_structured", "a=two", "b=1"], 2, "a"),
        (&[], 2, "Usage"),
    ] {
        let called = kernel.mgp(&[&["tools", "call"], args].concat()).await;
        assert_eq!(
            called.status.code(),
            Some(code),
            "{args:?}: {}",
            err(&called)
        );
        assert!(err(&called).contains(words), "{args:?}: {}", err(&called));
        assert_eq!(out(&called), "", "{args:?}");
    }
}

/// `mgp servers add|remove`: the file keeps its comments and its order, the kernel takes it up at
/// once, and what is wrong changes nothing.
#[tokio::test]
async fn servers_are_added_and_removed_with_all_comments_kept() {
    // What stands in the file is kept as a secret, where the kernel looks for it.
    let home = tempfile::tempdir().unwrap();
    let home = home.path().display().to_string();
    let config = format!("# mine\n{}", Program::fixture(&[]).entry("it"));
    let door = "[http]\nlisten = \"127.0.0.1:0\"\nauth = \"none\"\n";
    let own = [("HOME", &*home), ("XDG_CONFIG_HOME", &*home)];
    let kernel = Kernel::with_environment(&format!("{door}{config}"), &own).await;
    kernel.connected(&["it"]).await;
    let file = kernel.folder().join("mgp.toml");
    let before = std::fs::read_to_string(&file).unwrap() + "# the end\n";
    std::fs::write(&file, &before).unwrap();
    let fixture = Program::fixture(&[]);
    let colours = kernel.folder().join("colours").display().to_string();
    std::fs::write(&colours, "COLOUR=blue\n").unwrap();
    let add = [
        "servers",
        "add",
        "two",
        "--env-file",
        &colours,
        "--",
        &fixture.command,
        "--stdio",
    ];
    let added = kernel
        .program(&add)
        .env("HOME", &*home)
        .env("XDG_CONFIG_HOME", &*home)
        .output(DEADLINE)
        .await;
    assert!(added.status.success(), "{}", err(&added));
    assert!(out(&added).contains("two is connected"), "{}", out(&added));
    let after = std::fs::read_to_string(&file).unwrap();
    assert!(
        after.contains("# mine\n") && after.contains("# the end\n"),
        "{after}"
    );
    let env = kernel.mgp_json(&["tools", "call", "two:env"]).await;
    assert_eq!(env["structuredContent"]["COLOUR"], "blue");

    for (wrong, words) in [
        (add, "two"),
        (
            [
                "servers", "add", "a b", "--trust", "standard", "--", "x", "y",
            ],
            "server id",
        ),
    ] {
        let refused = kernel.mgp(&wrong).await;
        assert!(
            [1, 2].contains(&refused.status.code().unwrap()),
            "{refused:?}"
        );
        assert!(err(&refused).contains(words), "{}", err(&refused));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), after);
    }

    let removed = kernel.mgp(&["servers", "remove", "two"]).await;
    assert!(removed.status.success(), "{}", err(&removed));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    let listed = kernel.mgp_json(&["servers", "list"]).await;
    let ids: Vec<&Value> = listed["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["id"])
        .collect();
    assert_eq!(ids, ["it"]);
    let again = kernel.mgp(&["servers", "remove", "two"]).await;
    assert_eq!(again.status.code(), Some(2));
    assert!(err(&again).contains("two"));
}

/// `mgp servers stop|start|restart|logs`: what was asked has happened when they come back.
#[tokio::test]
async fn servers_are_stopped_started_and_looked_into() {
    let kernel = scene::kernel().await;
    let state = async || kernel.mgp_json(&["servers", "list"]).await["servers"][0].clone();
    let first = state().await["pid"].clone();
    let stopped = kernel.mgp(&["servers", "stop", "it"]).await;
    assert!(
        out(&stopped).starts_with("it is disconnected"),
        "{}",
        out(&stopped)
    );
    assert_eq!(state().await["pid"], Value::Null);
    let called = kernel.mgp(&["tools", "call", "it:echo", "text=x"]).await;
    assert_eq!(called.status.code(), Some(1));
    let started = kernel.mgp(&["servers", "start", "it"]).await;
    assert!(
        out(&started).starts_with("it is connected"),
        "{}",
        out(&started)
    );
    let called = kernel.mgp(&["tools", "call", "it:echo", "text=x"]).await;
    assert_eq!(out(&called), "x\n");
    assert!(
        kernel
            .mgp(&["servers", "restart", "it"])
            .await
            .status
            .success()
    );
    assert_ne!(state().await["pid"], first);

    assert!(
        kernel
            .mgp(&["tools", "call", "it:banner", "lines=3"])
            .await
            .status
            .success()
    );
    let log = out(&kernel.mgp(&["servers", "logs", "it"]).await);
    assert_eq!(log.matches("not a message on stdout").count(), 3, "{log}");
    let last = out(&kernel.mgp(&["servers", "logs", "it", "-n", "1"]).await);
    assert_eq!(last.lines().count(), 1);
    assert!(log.ends_with(&last), "{last}");
    let unknown = kernel.mgp(&["servers", "logs", "nobody"]).await;
    assert_eq!(unknown.status.code(), Some(2));
    assert!(err(&unknown).contains("nobody"));
}

/// `mgp down` where nobody waits for the kernel, as in a container without an init: a zombie has ended.
#[tokio::test]
async fn down_accepts_a_zombie_as_stopped() {
    let mut kernel = scene::kernel().await;
    let down = kernel.mgp(&["down"]).await;
    assert!(down.status.success(), "{}", err(&down));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", kernel.pid())).unwrap();
    assert!(stat.contains(") Z "), "nobody has waited for it: {stat}");
    assert!(kernel.process().end(DEADLINE).await.success());
}

/// A kernel that was stopped is named, with what makes it go on, by everybody who talks to it; also
/// when so many wait before its door that no more are taken.
#[tokio::test]
async fn suspended_kernel_is_reported_with_how_to_resume_it() {
    let mut kernel = scene::kernel().await;
    let pid = kernel.pid();
    kernel.process().signal(Signal::SIGSTOP);
    let words = format!("(process {pid}) does not answer; it is stopped: kill -CONT {pid}");
    let mut waiting = Vec::new();
    for crowded in [false, true] {
        for verb in [&["stdio"][..], &["status"], &["down"], &["up", "--detach"]] {
            let said = kernel.mgp(verb).await;
            assert_eq!(said.status.code(), Some(1), "{verb:?}, crowded: {crowded}");
            let told = err(&said);
            assert!(
                told.contains(&words),
                "{verb:?}, crowded: {crowded}: {told}"
            );
            assert!(!told.contains("os error"), "{told}");
            assert_eq!(out(&said), "");
        }
        while !crowded && let Some(one) = knocked(&kernel.socket()) {
            waiting.push(one);
        }
    }
    drop(waiting);
    kernel.process().signal(Signal::SIGCONT);
    assert_eq!(kernel.mgp_json(&["status"]).await["pid"], pid);
}

/// A connection that waits to be taken; `None` when there is no room for more.
fn knocked(socket: &std::path::Path) -> Option<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let one = nix::sys::socket::socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
    let address = UnixAddr::new(socket).unwrap();
    connect(one.as_raw_fd(), &address).is_ok().then_some(one)
}

/// Right after a kernel was killed its socket still takes a connection, and cuts it off: that is no
/// kernel, and one is started.
#[tokio::test]
async fn a_kernel_is_started_in_place_of_one_that_dies() {
    for verb in [&["up", "--detach"][..], &["stdio"]] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let config = "[http]\nenabled = false\n[discovery]\nembedding = \"off\"\n";
        std::fs::write(at("mgp.toml"), config).unwrap();
        let run = async |args: &[&str]| {
            let program = Program::ours("mgp", args.iter().copied());
            let program = program.env("MGP_SOCKET", at("mgp.sock"));
            let program = program.env("MGP_DATA_DIR", at("data"));
            let program = program.env("MGP_CONFIG_PATH", at("mgp.toml"));
            program.output(DEADLINE).await
        };
        let dying = UnixListener::bind(at("mgp.sock")).unwrap();
        let dies = std::thread::spawn(move || {
            let mut cut_off = dying.accept().unwrap().0;
            // What was said and is never read makes it a reset.
            cut_off.read_exact(&mut [0]).unwrap();
        });
        let started = run(verb).await;
        dies.join().unwrap();
        let down = run(&["down"]).await;
        assert!(started.status.success(), "{verb:?}: {}", err(&started));
        assert!(down.status.success(), "{verb:?}: {}", err(&down));
    }
}

/// `mgp up --detach` leaves its terminal: the kernel has a session of its own, and lives on when the
/// terminal is closed.
#[tokio::test]
async fn a_kernel_in_the_background_outlives_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let config = "[http]\nenabled = false\n[discovery]\nembedding = \"off\"\n";
    std::fs::write(at("mgp.toml"), config).unwrap();
    let place = |program: Program| {
        program
            .env("MGP_SOCKET", at("mgp.sock"))
            .env("MGP_DATA_DIR", at("data"))
            .env("MGP_CONFIG_PATH", at("mgp.toml"))
    };
    let mgp = Program::ours("mgp", ["up"]).command;
    let up = format!("{mgp} up --detach");
    let terminal = place(Program::new("script", ["-qec", &up, "/dev/null"]));
    assert!(terminal.output(DEADLINE).await.status.success());
    let status = place(Program::ours("mgp", ["status", "--json"]))
        .output(DEADLINE)
        .await;
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let pid = status["pid"].as_u64().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let (session, terminal) = (fields[3], fields[4]);
    let down = place(Program::ours("mgp", ["down"])).output(DEADLINE).await;
    assert!(down.status.success(), "{}", err(&down));
    assert_eq!((session, terminal), (pid.to_string().as_str(), "0"));
}

/// What the page about operating says a program can rely on is there, and nothing else than one line of JSON
/// comes to stdout.
#[tokio::test]
async fn programs_find_the_members_that_are_documented() {
    let kernel = scene::kernel().await;
    let page = include_str!("../../../../docs/operating.md");
    let table = page.split("| typed | members |").nth(1).unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let mut seen = 0;
    for row in rows {
        let [typed, members] = row.trim_matches('|').split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let named = |text: &str| -> Vec<String> {
            let words = text.split('`').skip(1).step_by(2);
            words.map(str::to_owned).collect()
        };
        let line = named(typed).remove(0);
        let args: Vec<&str> = line.split(' ').skip(1).collect();
        let args = match args[..] {
            ["tools", "call"] => [&args[..], &["it:echo", "text=x", "--json"]].concat(),
            _ => [&args[..], &["--json"]].concat(),
        };
        let home = kernel.folder().display().to_string();
        let program = kernel
            .program(&args)
            .env("HOME", &*home)
            .env("XDG_CONFIG_HOME", &*home);
        let output = program.output(DEADLINE).await;
        let said = out(&output);
        assert_eq!(said.lines().count(), 1, "{line}: {said}{}", err(&output));
        let answer: Value = serde_json::from_str(&said).unwrap();
        let (top, each) = members.split_once(", each with ").unwrap_or((members, ""));
        for member in named(top) {
            assert!(
                answer.get(&member).is_some(),
                "{line} has no {member}: {said}"
            );
            let first = answer[&member].as_array().and_then(|all| all.first());
            for inner in named(each) {
                assert!(
                    first.unwrap().get(&inner).is_some(),
                    "{line}: {inner}: {said}"
                );
            }
        }
        seen += 1;
    }
    assert!(seen >= 10, "{seen}");
}

/// Neither colours nor what moves the cursor come through a pipe, or to a terminal that is to have none.
#[tokio::test]
async fn output_has_no_colour_through_a_pipe_or_when_switched_off() {
    let kernel = scene::kernel().await;
    for line in [&["status"][..], &["tools", "list"], &["--help"], &["tols"]] {
        let said = kernel.mgp(line).await;
        assert!(!(out(&said) + &err(&said)).contains('\u{1b}'), "{line:?}");
        let mgp = kernel.program(line);
        let typed = format!("{} {}", mgp.command, line.join(" "));
        let script = Program::new("script", ["-qec", &typed, "/dev/null"]);
        let script = (mgp.env.iter()).fold(script, |script, (name, value)| script.env(name, value));
        let shown = script
            .env("NO_COLOR", "1")
            .env("TERM", "xterm")
            .output(DEADLINE)
            .await;
        assert!(
            !out(&shown).contains("\u{1b}[3"),
            "{line:?}: {}",
            out(&shown)
        );
    }
}

/// Help can be asked for in front, and what cannot be read is an error in JSON, too.
#[tokio::test]
async fn help_and_errors_of_the_command_line_are_where_they_are_looked_for() {
    let help = Program::ours("mgp", ["help", "servers", "add"])
        .output(DEADLINE)
        .await;
    assert!(help.status.success() && out(&help).contains("mgp servers add"));
    let wrong = Program::ours("mgp", ["--json", "nosuch"])
        .output(DEADLINE)
        .await;
    assert_eq!(wrong.status.code(), Some(2));
    let error: Value = serde_json::from_slice(&wrong.stderr).unwrap();
    assert_eq!(error["error"]["exit_code"], 2);
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("nosuch")
    );
    let plain = Program::ours("mgp", ["nosuch"]).output(DEADLINE).await;
    assert!(plain.status.code() == Some(2) && err(&plain).contains("error: "));
}
