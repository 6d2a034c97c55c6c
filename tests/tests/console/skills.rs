//! Skills of servers in the console.

use mgp_tests::harness::{Need, Peers, Program};

use crate::scene;

/// EXT-202: the tab of a server shows its skills and their files, and its pins those of its skills; a text of a skill is
/// not markup.
#[tokio::test]
async fn skills_and_their_pins_are_shown() {
    if Peers::find(&[Need::Browser]).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tone = folder.path().join("tone");
    std::fs::create_dir(&tone).unwrap();
    let text = "---\nname: tone\ndescription: How we write <b id=markup>x</b>\n---\nShort.\n";
    std::fs::write(tone.join("SKILL.md"), text).unwrap();
    std::fs::write(tone.join("words.md"), "# Words\n").unwrap();
    let docs = Program::ours("mgp", ["__skills", folder.path().to_str().unwrap()]);
    let kernel = scene::kernel(&docs.entry("docs")).await;
    kernel.connected(&["docs"]).await;
    let browser = scene::signed_in(&kernel, &[]).await;
    browser.page("#/servers/docs/skills").await;
    browser.shows("How we write <b id=markup>x</b>").await;
    browser.shows("skill://docs/tone/SKILL.md").await;
    browser
        .js("document.querySelector('main details summary').click()")
        .await;
    browser.shows("skill://docs/tone/words.md").await;
    let markup = browser.js("return document.getElementById('markup')").await;
    assert!(markup.is_null(), "{markup}");
    browser.page("#/servers/docs/pins").await;
    browser.shows("1 pinned, all as approved").await;
    browser.press("skill://tone/SKILL.md").await;
    browser
        .until(
            "the pinned entry is shown",
            "/Approved by[^]*lines as before/.test(document.querySelector('.detail')?.innerText)",
        )
        .await;
}
