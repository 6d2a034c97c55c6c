//! Meanings are made aside: at the lowest priority, those of what is called first, and in plain sight.

use super::*;

fn many() -> Vec<Value> {
    let tools = 0..12;
    let tools = tools.map(|n| {
        tool(
            &format!("tool_{n}"),
            &format!("Does number {n} of the work"),
        )
    });
    tools.collect()
}

/// The niceness of the threads of a process, by their names.
fn niceness(pid: u32) -> Vec<(String, i32)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let stat = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        let (head, tail) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        // The 19th of all, the 17th behind the name.
        Some((name, tail.split_whitespace().nth(16)?.parse().ok()?))
    };
    tasks.filter_map(stat).collect()
}

/// MGP-239: 10,000 tools take minutes of a core at the first start. Nobody waits for them: the threads that do
/// that get what nobody else wants, a request is not behind them, and calls go before both.
#[tokio::test]
async fn meanings_of_tools_are_made_at_low_priority() {
    let kernel = Kernel::start(&format!("{}{BUILTIN}", entry("it", &many()))).await;
    kernel.connected(&["it"]).await;
    let mut owner = operator(&kernel).await;
    embedded(&mut owner).await;
    by(&mut owner, "semantic", "work").await;
    let model = kernel.mgp_json(&["status"]).await["index"]["model_process"].as_u64();
    let model = niceness(u32::try_from(model.unwrap()).unwrap());
    for (name, nice) in [("tools", 19), ("requests", 5)] {
        // Threads that a lane starts for a batch have its name and its priority.
        let mut lane = model.iter().filter(|thread| thread.0 == name).peekable();
        assert!(lane.peek().is_some(), "{name}: {model:?}");
        assert!(lane.all(|thread| thread.1 == nice), "{name}: {model:?}");
    }
    let kernels = niceness(kernel.pid());
    assert!(kernels.iter().all(|(_, nice)| *nice == 0), "{kernels:?}");
}

/// MGP-236: how far that is stands in `mgp status`.
#[tokio::test]
async fn progress_of_embedding_is_in_the_status() {
    let provider = Provider::start().await;
    let broken = &provider.seen.broken;
    broken.store(true, std::sync::atomic::Ordering::SeqCst);
    let config = format!("{}{}", entry("it", &many()), provider.section());
    let kernel = Kernel::start(&config).await;
    kernel.connected(&["it"]).await;
    let mut owner = operator(&kernel).await;
    indexed(&mut owner, &["tool_11"]).await;
    let index = async || kernel.mgp_json(&["status"]).await["index"].take();
    wait_until("its texts wait", DEADLINE, async || {
        let now = index().await;
        now["by_meaning"] == 0 && now["waiting"].as_u64() > Some(24)
    })
    .await;
    let shown = kernel.mgp(&["status"]).await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("of which 0 can be found by meaning so far"),
        "{shown}"
    );
    broken.store(false, std::sync::atomic::Ordering::SeqCst);
    embedded(&mut owner).await;
    let done = index().await;
    assert_eq!(done["by_meaning"], done["tools"], "{done}");
    assert_eq!(done["waiting"], 0, "{done}");
}

/// MGP-236: by the record of calls, what is called most has its meaning first.
#[tokio::test]
async fn most_called_tools_are_embedded_first() {
    let provider = Provider::start().await;
    let config = format!("{}{}", entry("it", &many()), provider.section());
    let kernel = Kernel::start(&config).await;
    kernel.connected(&["it"]).await;
    let mut owner = operator(&kernel).await;
    embedded(&mut owner).await;
    let before = provider.order();
    let place = |order: &[String]| order.iter().position(|text| text.contains("number 9 of"));
    assert!(
        place(&before) > Some(4),
        "it is no first one by itself: {before:?}"
    );
    for _ in 0..3 {
        owner.call("it__tool_9", json!({})).await;
    }
    provider.seen.order.lock().unwrap().clear();
    let _kernel = again(kernel, Vec::clear).await;
    wait_until("its meaning is made", DEADLINE, async || {
        place(&provider.order()).is_some()
    })
    .await;
    let after = provider.order();
    assert!(place(&after) < Some(4), "in the first request: {after:?}");
}
