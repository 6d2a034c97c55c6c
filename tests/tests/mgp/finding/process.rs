//! The model runs in a process of its own, which harms nobody however it ends.

use mgp_tests::harness::process::usage::below;
use mgp_tests::harness::system;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::*;

/// Seconds after which the model leaves.
const SOON: &str = "model_idle_secs = 2\n";

fn config(tools: &[Value], more: &str) -> String {
    format!("{}{BUILTIN}{more}", entry("it", tools))
}

/// So many tools that their meanings take some seconds.
fn many() -> Vec<Value> {
    let tools = 0..150;
    let tools = tools.map(|n| {
        let words = format!("Does number {n} of all the work that there is to be done. ");
        tool(&format!("tool_{n}"), &words.repeat(4))
    });
    tools.collect()
}

/// The process that runs the model, as `mgp status` has it.
async fn told(kernel: &Kernel) -> Option<u32> {
    let status = kernel.mgp_json(&["status"]).await;
    let pid = status["index"]["model_process"].as_u64();
    pid.and_then(|pid| u32::try_from(pid).ok())
}

/// The same, as the system has it; one that was killed a moment ago is none.
fn process(kernel: &Kernel) -> Option<u32> {
    below(kernel.pid()).into_iter().find(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        runs(*pid) && line.ends_with(b"\0__embed\0")
    })
}

/// Waits until it runs.
async fn running(kernel: &Kernel) -> u32 {
    let mut found = None;
    wait_until("the model runs", DEADLINE, async || {
        found = process(kernel);
        found.is_some()
    })
    .await;
    found.unwrap()
}

fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

async fn gone(pid: u32) {
    wait_until("it has ended", DEADLINE, async || !runs(pid)).await;
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

/// Waits until it is at work on tools.
async fn at_work(kernel: &Kernel) {
    wait_until("some are made and some wait", DEADLINE, async || {
        let index = kernel.mgp_json(&["status"]).await["index"].take();
        index["by_meaning"].as_u64() > Some(2) && index["waiting"].as_u64() > Some(20)
    })
    .await;
}

/// The memory that the model takes is there only while it has something to do, and a search
/// afterwards has its meaning all the same.
#[tokio::test]
async fn idle_model_exits_and_is_started_for_a_search() {
    let tools = [
        tool("load_contents", "Load text from disk"),
        tool("add_numbers", "Sum of two integers"),
    ];
    let kernel = Kernel::start(&config(&tools, SOON)).await;
    kernel.connected(&["it"]).await;
    let mut owner = operator(&kernel).await;
    let first = running(&kernel).await;
    assert_eq!(told(&kernel).await, Some(first));
    let shown = kernel.mgp(&["status"]).await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("the model runs in process"), "{shown}");
    embedded(&mut owner).await;
    gone(first).await;
    wait_until("the status says so", DEADLINE, async || {
        told(&kernel).await.is_none()
    })
    .await;
    let query = "show me what a file says";
    let found = by(&mut owner, "semantic", query).await;
    assert_eq!(found["search_strategy"], "semantic", "{found:#}");
    assert!(names(&found).contains(&"it:load_contents"), "{found:#}");
    let second = running(&kernel).await;
    assert_ne!(first, second);
    gone(second).await;
    by(&mut owner, "semantic", query).await;
    assert_eq!(process(&kernel), None, "what was asked lately is known");
}

/// Killed at work, it is replaced; a search meanwhile is answered by meaning, and no tool is
/// left out.
#[tokio::test]
async fn a_model_that_is_killed_at_work_is_replaced() {
    let kernel = Kernel::start(&config(&many(), "")).await;
    kernel.connected(&["it"]).await;
    let mut owner = operator(&kernel).await;
    at_work(&kernel).await;
    let first = running(&kernel).await;
    signal(first, Signal::SIGKILL);
    let found = by(&mut owner, "semantic", "work").await;
    assert_eq!(found["search_strategy"], "semantic", "{found:#}");
    let second = running(&kernel).await;
    assert_ne!(first, second);
    embedded(&mut owner).await;
}

/// One that is stopped in the middle holds up no call; a search goes by words and says so.
#[tokio::test]
async fn search_falls_back_to_keywords_when_the_model_hangs() {
    let kernel = Kernel::start(&config(&many(), "")).await;
    kernel.connected(&["it"]).await;
    let mut owner = operator(&kernel).await;
    at_work(&kernel).await;
    let pid = running(&kernel).await;
    signal(pid, Signal::SIGSTOP);
    let mut other = operator(&kernel).await;
    let calling = async {
        // The quickest of three says whether calls wait, whatever else the machine does.
        let mut took = Duration::MAX;
        for _ in 0..3 {
            let began = Instant::now();
            let called = other.call("it__tool_140", json!({})).await;
            assert!(called.result()["isError"] != true);
            took = took.min(began.elapsed());
        }
        took
    };
    let (found, took) = tokio::join!(by(&mut owner, "hybrid", "tool_140"), calling);
    assert!(took < Duration::from_secs(1), "a call took {took:?}");
    assert_eq!(found["search_strategy"], "keyword", "{found:#}");
    assert_eq!(names(&found)[0], "it:tool_140", "{found:#}");
    signal(pid, Signal::SIGCONT);
    embedded(&mut owner).await;
    assert_eq!(process(&kernel), Some(pid), "it had only been stopped");
}

/// A kernel that is killed takes it along, at work or stopped.
#[tokio::test]
async fn a_killed_kernel_takes_the_model_along() {
    for stopped in [false, true] {
        let kernel = Kernel::start(&config(&many(), "")).await;
        kernel.connected(&["it"]).await;
        at_work(&kernel).await;
        let pid = running(&kernel).await;
        if stopped {
            signal(pid, Signal::SIGSTOP);
            // Without a signal of its parent's end it is continued, and told to end, if it has stopped before that.
            wait_until("it has stopped", DEADLINE, async || {
                let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
                status.is_ok_and(|status| status.contains("State:\tT"))
            })
            .await;
        }
        let _folder = kernel.end(Signal::SIGKILL, DEADLINE).await;
        gone(pid).await;
    }
}

/// It has its pipes and nothing else: no rights, no other user's, no file, no descriptor, and
/// every call that opens, connects or starts anything is refused.
#[tokio::test]
async fn the_model_is_behind_walls() {
    let kernel = Kernel::start(&config(&many(), "")).await;
    kernel.connected(&["it"]).await;
    at_work(&kernel).await;
    let pid = running(&kernel).await;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {status}"))
            .trim()
            .to_owned()
    };
    let is_held = system::holds_sandbox().await;
    if is_held {
        for (name, value) in [("NoNewPrivs:", "1"), ("Seccomp:", "2")] {
            assert_eq!(field(name), value);
        }
        for rights in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(field(rights), "0000000000000000", "{rights}");
        }
        let users = field("Uid:");
        assert!(!users.split_whitespace().any(|user| user == "0"), "{users}");
    }
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let allocator = b"MIMALLOC_ARENA_EAGER_COMMIT=0\0";
    assert_eq!(environment, allocator, "nothing of the kernel's");
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let open: Vec<_> = open
        .map(|fd| std::fs::read_link(fd.unwrap().path()).unwrap())
        .filter(|to| !to.starts_with("/dev/null"))
        .collect();
    assert!(
        open.iter()
            .all(|to| to.to_string_lossy().starts_with("pipe:")),
        "{open:?}"
    );
    assert_eq!(open.len(), 2, "{open:?}");
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let of_sandbox = [("Max open files", 0)];
    let of_sandbox = of_sandbox.into_iter().filter(|_| is_held);
    let of_all = [("Max data size", 512 << 20), ("Max file size", 0)];
    for (limit, most) in of_all.into_iter().chain(of_sandbox) {
        let line = limits.lines().find_map(|line| line.strip_prefix(limit));
        let soft = line.and_then(|line| line.split_whitespace().next());
        assert_eq!(
            soft.and_then(|soft| soft.parse().ok()),
            Some(most),
            "{limit}: {limits}"
        );
    }
}
