//! How a listener closes.

use std::sync::Mutex;

use super::*;

const GET: &str = "GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n";

fn grace(grace: Duration) -> ListenerLimits {
    ListenerLimits {
        grace,
        ..ListenerLimits::default()
    }
}

/// MCP-074: a held event stream is ended properly, at once.
#[tokio::test]
async fn closing_ends_long_lived_streams() {
    let door = open(grace(Duration::from_secs(60)), |_, _| async {
        let (tell, _) = Tell::new();
        Response::new(ReplyBody::stream(silent(tell)).mark_long_lived())
    });
    let mut idle = Raw::to(&door.at).await;
    idle.say(GET).await;
    idle.hear("\r\n\r\n").await;
    let mut fresh = Raw::to(&door.at).await;
    door.closing.cancel();
    assert_eq!(idle.rest().await, "0\r\n\r\n");
    assert_eq!(fresh.rest().await, "");
    soon(door.served).await.unwrap();
    assert!(TcpStream::connect(&door.at).await.is_err());
}

#[tokio::test]
async fn closing_lets_calls_in_flight_finish() {
    let (finish, finished) = oneshot::channel::<()>();
    let (called, calls) = oneshot::channel();
    let once = Mutex::new(Some((called, finished)));
    let door = open(grace(Duration::from_secs(60)), move |_, _| {
        let (called, finished) = once.lock().unwrap().take().unwrap();
        async {
            called.send(()).unwrap();
            finished.await.unwrap();
            Response::new(ReplyBody::full("done"))
        }
    });
    let mut client = Raw::to(&door.at).await;
    client.say(GET).await;
    soon(calls).await.unwrap();
    door.closing.cancel();
    finish.send(()).unwrap();
    let answer = client.rest().await;
    assert!(answer.ends_with("\r\n\r\ndone"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    soon(door.served).await.unwrap();
}

#[tokio::test]
async fn closing_waits_no_longer_than_the_grace() {
    let (called, calls) = oneshot::channel();
    let once = Mutex::new(Some(called));
    let door = open(grace(Duration::from_millis(50)), move |_, _| {
        once.lock().unwrap().take().unwrap().send(()).unwrap();
        std::future::pending()
    });
    let mut client = Raw::to(&door.at).await;
    client.say(GET).await;
    soon(calls).await.unwrap();
    door.closing.cancel();
    assert_eq!(client.rest().await, "");
    soon(door.served).await.unwrap();
}
