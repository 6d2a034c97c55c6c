//! Measures the cost of a frame through a child (`cat`) and back. Run it with `--release`.
//!
//! Prints, per frame size and number of frames in flight, frames per second and the processor time of this process
//! (without `cat`) for each frame.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mgp_protocol::ids::ServerId;
use mgp_transports::child::{self, ChildSpec};
use mgp_transports::lines::{self, LineSink, QueueLimits};
use mgp_transports::log::ServerLog;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use tokio::sync::Semaphore;

const STALL: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> io::Result<()> {
    for (size, in_flight, count) in [
        (200, 1, 50_000),
        (200, 64, 500_000),
        (200, 900, 3_000_000),
        (65_536, 1, 20_000),
        (65_536, 16, 50_000),
        (1 << 20, 4, 2_000),
    ] {
        // On a worker, as in the kernel, where a wakeup stays on its thread.
        tokio::spawn(measure(size, in_flight, count)).await??;
    }
    Ok(())
}

async fn measure(size: usize, in_flight: usize, count: u32) -> io::Result<()> {
    let spec = ChildSpec {
        id: ServerId::new("cat"),
        command: "cat".into(),
        args: vec![],
        env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        inherit_env: vec![],
        cwd: None,
        kernel_mark: "measure".into(),
        launcher: None,
    };
    let mut cat = child::spawn(&spec, &ServerLog::new()).map_err(io::Error::other)?;
    let (sink, writer) = lines::line_channel(QueueLimits::default());
    let stdin = cat.take_stdin().ok_or(io::ErrorKind::BrokenPipe)?;
    let stdout = cat.take_stdout().ok_or(io::ErrorKind::BrokenPipe)?;
    tokio::spawn(writer.run(stdin, STALL));
    let window = Arc::new(Semaphore::new(in_flight));
    let (begun, spent) = (Instant::now(), processor_time()?);
    let sending = tokio::spawn(send(sink, Arc::clone(&window), size, count));
    lines::read_lines(stdout, 2 << 20, |_| window.add_permits(1)).await;
    let (took, spent) = (begun.elapsed(), processor_time()? - spent);
    sending.await?;
    println!(
        "{size:>8} bytes, {in_flight:>4} in flight: {:>9.0} frames/s, {:>7.2} us each",
        f64::from(count) / took.as_secs_f64(),
        spent.as_secs_f64() * 1e6 / f64::from(count),
    );
    cat.stop(STALL).await;
    Ok(())
}

async fn send(sink: LineSink, window: Arc<Semaphore>, size: usize, count: u32) {
    let frame = Bytes::from(vec![b'x'; size]);
    for _ in 0..count {
        if let Ok(permit) = window.acquire().await {
            permit.forget();
        }
        sink.send(frame.clone())
            .expect("the window is below the limit");
    }
}

fn processor_time() -> io::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let of = |time: TimeVal| {
        let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
        Duration::from_micros(micros.cast_unsigned())
    };
    Ok(of(usage.user_time()) + of(usage.system_time()))
}
