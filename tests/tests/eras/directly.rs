//! The same story without a kernel between: what it holds is true of the scripted server itself.

use mgp_tests::harness::{Client, ModernAgent, Program, Upstream};

use crate::story::Story;
use crate::versions::VERSIONS;

/// A client and a server of one version understand each other over HTTP.
#[tokio::test]
async fn a_version_speaks_with_itself_over_http() {
    for version in VERSIONS {
        eprintln!("{}", version.name);
        let upstream = Upstream::start(&version.server()).await;
        let able = version.client();
        let mut client = Client::over_http(&upstream.url(), version.name, able).await;
        let mut story = Story {
            client: &mut client,
            prefix: "",
            of_client: version,
            of_server: version,
        };
        story.tell().await;
        client.close().await;
    }
}

/// And over stdio, where everything comes over one pipe.
#[tokio::test]
async fn the_modern_version_speaks_with_itself_over_stdio() {
    let version = VERSIONS[4];
    let server = Program::fixture(&version.server());
    let agent = ModernAgent::over_stdio(&server, version.client());
    let mut client = Client::Modern(Box::new(agent));
    let mut story = Story {
        client: &mut client,
        prefix: "",
        of_client: version,
        of_server: version,
    };
    story.tell().await;
    let Client::Modern(agent) = client else {
        panic!("it does not change");
    };
    assert!(agent.requested().is_empty());
    assert!(agent.close().await.unwrap().success());
}
