//! Grants that allow on a condition: every way to the tool, what a caller reads, and where links lead.

use std::os::unix::fs::symlink;

use mgp_tests::harness::envelope::MODERN;
use mgp_tests::harness::mgp::speaks_mgp;
use mgp_tests::harness::{Answer, Client, HttpClient, Kernel};
use serde_json::{Value, json};

use super::{ANYBODY, NEWEST, anybody, echoed, kernel_of_two, names, owner, query};

const PERMITTED: &str = "permitted-fruit";
const FORBIDDEN: &str = "forbidden-fruit";
const WHEN: &str = "args.text == \"permitted-fruit\"";

async fn grant(kernel: &Kernel, place: &str, when: &str) -> Value {
    kernel
        .mgp_json(&["grants", "add", ANYBODY, place, "--when", when])
        .await
}

/// Whether a call failed, as an error or as a result for the model.
fn is_refused(answer: &Answer) -> bool {
    answer.is_error() || answer.frame.contains("\"isError\":true")
}

/// What a line of the program's standard output or error says.
async fn printed(kernel: &Kernel, args: &[&str]) -> String {
    let output = kernel.mgp(args).await;
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// The frames that reached server `one`.
async fn seen(kernel: &Kernel) -> String {
    let mut owner = owner(kernel).await;
    owner.call("one__received", json!({})).await.frame.clone()
}

/// EXT-141, EXT-145: at each door, in each era, by each name and through the tool that calls others, and whatever the
/// default policy is: what does not meet the condition never reaches the server.
#[tokio::test]
async fn a_condition_holds_at_every_door() {
    for policy in ["opt-in", "opt-out"] {
        let kernel = kernel_of_two(&format!("[access]\ndefault_policy = \"{policy}\"\n")).await;
        grant(&kernel, "one:echo", WHEN).await;
        let calls = |text: &str| {
            let arguments = json!({"text": text});
            [
                ("one__echo", arguments.clone()),
                ("one:echo", arguments.clone()),
                (
                    "mgp_tools_call",
                    json!({"name": "one__echo", "arguments": arguments}),
                ),
            ]
        };
        let mut answered = 0;
        for era in [NEWEST, MODERN] {
            for capabilities in ["{}".to_owned(), speaks_mgp(era)] {
                for (text, allowed) in [(PERMITTED, true), (FORBIDDEN, false)] {
                    let mut client = Client::over_http(kernel.url(), era, &capabilities).await;
                    for (name, arguments) in calls(text) {
                        let answer = client.call(name, arguments).await;
                        assert_eq!(
                            is_refused(&answer),
                            !allowed,
                            "{era} {name}: {}",
                            answer.frame
                        );
                        answered += usize::from(allowed);
                    }
                }
            }
        }
        for (text, allowed) in [(PERMITTED, true), (FORBIDDEN, false)] {
            let mut at_server = anybody(&kernel, Some("one")).await;
            let answer = at_server.call("echo", json!({"text": text})).await;
            assert_eq!(is_refused(&answer), !allowed, "{}", answer.frame);
            let url = kernel.url().replace("/mcp", "/mcp-lite/v1/calltools");
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": {"name": "one__echo", "arguments": {"text": text}}});
            let answer = HttpClient::new(&url).post(call.to_string()).await;
            let status = answer.status;
            let body = answer.text().await;
            assert_eq!(
                body.contains(&format!("\"{text}\"")) && status.is_success(),
                allowed,
                "{body}"
            );
        }
        // One that is granted nowhere says nothing of the condition.
        let mut other = anybody(&kernel, None).await;
        let answer = other.call("two__echo", json!({"text": PERMITTED})).await;
        assert_eq!(is_refused(&answer), policy == "opt-in", "{}", answer.frame);
        let listed = names(&mut other, "tools/list", "tools").await;
        assert!(listed.contains(&"one__echo".to_owned()), "{listed:?}");
        let seen = seen(&kernel).await;
        assert!(
            seen.contains(PERMITTED) && !seen.contains(FORBIDDEN),
            "{seen}"
        );
        assert_eq!(answered, 12);
    }
}

/// EXT-141: a condition on a server is about calls of its tools, and closes the rest of it.
#[tokio::test]
async fn a_condition_on_a_server_opens_no_resource() {
    let kernel = kernel_of_two("").await;
    grant(&kernel, "one", "tool.name == \"echo\"").await;
    let mut agent = anybody(&kernel, None).await;
    let echo = agent.call("one__echo", json!({"text": "x"})).await;
    assert!(!is_refused(&echo), "{}", echo.frame);
    let received = agent.call("one__received", json!({})).await;
    assert!(is_refused(&received), "{}", received.frame);
    for (method, member) in [("resources/list", "resources"), ("prompts/list", "prompts")] {
        let listed = names(&mut agent, method, member).await;
        assert!(!listed.is_empty(), "those of the other server");
        let mut at_server = anybody(&kernel, Some("one")).await;
        let listed = names(&mut at_server, method, member).await;
        assert!(listed.is_empty(), "{method}: {listed:?}");
    }
    // Taken back, it is as before.
    kernel.mgp(&["grants", "remove", ANYBODY, "one"]).await;
    let received = agent.call("one__received", json!({})).await;
    assert!(!is_refused(&received), "{}", received.frame);
}

/// EXT-143: the operator reads which part failed and with what value; a caller reads the condition if `reveal` says so,
/// and the audit log has no argument.
#[tokio::test]
async fn a_failed_condition_is_explained() {
    for reveal in [true, false] {
        let kernel = kernel_of_two(&format!("[access]\nreveal = {reveal}\n")).await;
        let granted = printed(
            &kernel,
            &["grants", "add", ANYBODY, "one:echo", "--when", WHEN],
        )
        .await;
        assert!(
            granted.contains(&format!("may use one:echo when {WHEN}")),
            "{granted}"
        );
        let explained = printed(&kernel, &["explain", ANYBODY, "one:echo"]).await;
        assert!(
            explained.contains("may use one:echo on a condition"),
            "{explained}"
        );
        assert!(explained.contains(&format!("when {WHEN}")), "{explained}");
        let explain = ["explain", ANYBODY, "one:echo", "text=forbidden-fruit"];
        let explained = printed(&kernel, &explain).await;
        assert!(explained.contains("may not use one:echo"), "{explained}");
        let why = format!("{WHEN} is false, args.text is \"{FORBIDDEN}\"");
        assert!(explained.contains(&why), "{explained}");
        let explain = ["explain", ANYBODY, "one:echo", "text=permitted-fruit"];
        let explained = printed(&kernel, &explain).await;
        assert!(explained.contains("may use one:echo"), "{explained}");
        let listed = printed(&kernel, &["grants", "list"]).await;
        assert!(
            listed.contains("on a condition") && listed.contains(WHEN),
            "{listed}"
        );
        let mut agent = anybody(&kernel, None).await;
        let answer = agent.call("one__echo", json!({"text": FORBIDDEN})).await;
        assert!(is_refused(&answer), "{}", answer.frame);
        assert!(
            answer.frame.contains("with these arguments"),
            "{}",
            answer.frame
        );
        assert_eq!(
            answer.frame.contains("args.text =="),
            reveal,
            "{}",
            answer.frame
        );
        let mut owner = owner(&kernel).await;
        let standing = query(&mut owner, "one", Some("echo")).await;
        assert_eq!(
            (&standing["permission"], &standing["when"]),
            (&json!("deny"), &json!(WHEN))
        );
        let audit = printed(&kernel, &["audit", "tail", "-n", "20", "--json"]).await;
        assert!(audit.contains("no condition of a grant holds"), "{audit}");
        assert!(!audit.contains(FORBIDDEN), "{audit}");
        assert!(!echoed(&mut owner, "one").await);
    }
}

/// EXT-140: a name that is none is refused before anything is granted.
#[tokio::test]
async fn a_misspelt_condition_is_refused_with_the_nearest_name() {
    let kernel = kernel_of_two("").await;
    for (when, hint) in [
        ("args.txet == \"a\"", "did you mean text?"),
        ("arg.text == \"a\"", "did you mean args?"),
        ("args.text.startswith(\"a\")", "did you mean startsWith?"),
        ("args.text", ""),
    ] {
        let add = ["grants", "add", ANYBODY, "one:echo", "--when", when];
        let output = kernel.mgp(&add).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_granted = output.status.success();
        assert_eq!(is_granted, hint.is_empty(), "{when}: {said}");
        assert!(said.contains(hint), "{when}: {said}");
    }
    let denied = [
        "grants", "add", ANYBODY, "one:echo", "--deny", "--when", WHEN,
    ];
    assert!(!kernel.mgp(&denied).await.status.success());
}

/// EXT-142: a path inside of a directory may be a link that leads out of it.
#[tokio::test]
async fn links_are_followed_at_servers_of_this_machine() {
    let kernel = kernel_of_two("").await;
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes");
    std::fs::create_dir(&notes).unwrap();
    std::fs::write(folder.path().join("secret"), "").unwrap();
    symlink("../secret", notes.join("link")).unwrap();
    symlink("/nowhere/yet", notes.join("dangling")).unwrap();
    let directory = notes.to_str().unwrap();
    grant(
        &kernel,
        "one:echo",
        &format!("inside(args.text, \"{directory}\")"),
    )
    .await;
    let mut agent = anybody(&kernel, None).await;
    for (path, allowed) in [
        ("new", true),
        ("new/folder/file", true),
        ("../notes/new", true),
        ("link", false),
        ("link/../new", false),
        ("dangling", false),
        ("../secret", false),
    ] {
        let text = format!("{directory}/{path}");
        let answer = agent.call("one__echo", json!({"text": text})).await;
        assert_eq!(is_refused(&answer), !allowed, "{path}: {}", answer.frame);
        let argument = format!("text={text}");
        let explain = kernel
            .mgp_json(&["explain", ANYBODY, "one:echo", &argument])
            .await;
        let expected = if allowed { "allow" } else { "deny" };
        assert_eq!(explain["permission"], expected, "{path}: {explain:#}");
    }
}
