//! Sandboxed servers that try to change what is not theirs, to get away, and to reach their neighbours;
//! under kernels of every kind: of whoever runs the tests, of a user without rights, and of one whom the
//! machine gives no namespaces.

mod leftovers;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use mgp_tests::harness::{Agent, DEADLINE, Kernel, Program, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::permissions::agent;
use crate::sandbox::{LEAST, Scene, config, home, is_unheld};

/// A number that needs no entry among the users of a machine.
const SOMEBODY: u32 = 64_003;
const PYTHON: &str = "/usr/bin/python3";
const SHELL: &str = "permissions = [\"shell.execute\"]\n";
/// After this long nothing of a killed kernel may run.
const ORPHANS: Duration = Duration::from_secs(2);

/// Whose kernel it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// The user who runs the tests.
    Me,
    /// A user with no rights.
    Somebody,
    /// The same, where no namespaces are to be had.
    SomebodyWithout,
}

impl Of {
    /// Only root can be several users.
    fn all() -> Vec<Self> {
        if !Path::new(PYTHON).exists() {
            eprintln!("SKIPPED: {PYTHON} is missing, nothing was tried");
            return Vec::new();
        }
        if nix::unistd::geteuid().is_root() {
            vec![Self::Me, Self::Somebody, Self::SomebodyWithout]
        } else {
            eprintln!("not run as root: no other user was tried");
            vec![Self::Me]
        }
    }

    async fn scene(self, keys: &str, sections: &str) -> Scene {
        let without = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all \
                       --ambient-caps=-all \"$@\"";
        let programs = programs();
        let (program, fixture) = (
            programs.path().join("mgp"),
            programs.path().join("mgp-fixture"),
        );
        let (user, program) = (SOMEBODY.to_string(), program.to_str().unwrap());
        let reuid = format!("--reuid={user}");
        let regid = format!("--regid={user}");
        let become_somebody = ["setpriv", &reuid, &regid, "--clear-groups"];
        let (mapped, group) = (format!("--map-user={user}"), format!("--map-group={user}"));
        let no_more = [
            "unshare",
            "-U",
            &mapped,
            &group,
            "--keep-caps",
            "sh",
            "-c",
            without,
            "sh",
        ];
        let behind = match self {
            Self::Me => return Scene::new(keys, sections).await,
            Self::Somebody => [&become_somebody[..], &[program]].concat(),
            Self::SomebodyWithout => [&become_somebody[..], &no_more, &[program]].concat(),
        };
        let home = home();
        let config = config(&home, keys, sections, &[]);
        let built = Program::fixture(&[]).command;
        let config = config.replace(&built, fixture.to_str().unwrap());
        let folder = TempDir::new().unwrap();
        let key = home.path().join(".ssh/id_ed25519");
        for path in [home.path(), &home.path().join(".ssh"), &key, folder.path()] {
            chown(path, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
        }
        let variables = [("HOME", home.path().to_str().unwrap())];
        let kernel = Kernel::behind(&behind, folder, &config, &variables).await;
        kernel.connected(&["it"]).await;
        let agent = agent(&kernel).await;
        Scene {
            kernel,
            agent,
            home,
            _programs: Some(programs),
        }
    }
}

/// The folder with our programs where every user reaches them: one for all tests that run at the same time.
fn programs() -> Arc<TempDir> {
    static PLACE: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut place = PLACE.lock().unwrap();
    if let Some(copied) = place.upgrade() {
        return copied;
    }
    let copied = TempDir::new().unwrap();
    fs::set_permissions(copied.path(), Permissions::from_mode(0o755)).unwrap();
    for name in ["mgp", "mgp-fixture"] {
        let built = Program::ours(name, [""; 0]).command;
        fs::copy(built, copied.path().join(name)).unwrap();
    }
    let copied = Arc::new(copied);
    *place = Arc::downgrade(&copied);
    copied
}

/// Runs Python in the sandbox; each line of its answer is one attempt that succeeded.
async fn python(scene: &mut Scene, code: &str, args: &[&str]) -> Vec<String> {
    let code = format!("{TRYING}{code}");
    let args = [&["-c", &code], args].concat();
    let ran = scene
        .attempt(json!({"what": "run", "at": PYTHON, "args": args}))
        .await;
    ran.unwrap().lines().map(str::to_owned).collect()
}

/// `tries(name, what)` prints the names of what is not refused.
const TRYING: &str = r#"
import os, sys, ctypes, resource, signal, time
libc = ctypes.CDLL(None, use_errno=True)
def tries(name, what):
    try:
        what()
        print(name, flush=True)
    except (OSError, ValueError, AttributeError) as error:
        print(name, error, file=sys.stderr)
def call(*args):
    if libc.syscall(*args) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"#;

/// What a file of somebody else is left as: contents, mode, owner and times.
fn looks(path: &str) -> (String, u32, u32, i64) {
    let found = fs::metadata(path).unwrap();
    let text = fs::read_to_string(path).unwrap();
    (text, found.mode(), found.uid(), found.mtime())
}

/// MGP-227: a server changes no mode, owner, time or attribute of what it only reads, and of its own files
/// all of them, as package managers must, wherever the machine can tell the two apart.
#[tokio::test(flavor = "multi_thread")]
async fn read_only_paths_of_a_sandboxed_server_cannot_be_changed() {
    if is_unheld().await {
        return;
    }
    let code = r#"
for at in sys.argv[1], sys.argv[2] + "/own":
    open(at, "a" if at == sys.argv[2] + "/own" else "r").close()
    n = os.path.basename(at)
    tries(n + " chmod", lambda: os.chmod(at, 0o666))
    tries(n + " fchmod", lambda: os.fchmod(os.open(at, os.O_RDONLY), 0o666))
    tries(n + " fchmodat2", lambda: call(452, -100, at.encode(), 0o666, 0))
    tries(n + " chown", lambda: os.chown(at, os.getuid(), os.getgid()))
    tries(n + " utime", lambda: os.utime(at, (1, 1)))
    tries(n + " setxattr", lambda: os.setxattr(at, "user.x", b"x"))
"#;
    for of in Of::all() {
        let keys = "permissions = [\"shell.execute\", \"filesystem.read\"]\n";
        let sections = format!("{LEAST}[servers.sandbox]\nread = [\"$HOME/.ssh\"]\n");
        let mut scene = of.scene(keys, &sections).await;
        let (key, own) = (scene.key(), scene.own());
        let before = looks(&key);
        let own_tmp = own.join("tmp");
        let done = python(&mut scene, code, &[&key, own_tmp.to_str().unwrap()]).await;
        assert_eq!(looks(&key), before, "{of:?}");
        let own: Vec<_> = ["chmod", "fchmod", "fchmodat2", "chown", "utime", "setxattr"]
            .map(|what| format!("own {what}"))
            .into();
        match of {
            Of::Me | Of::Somebody => assert_eq!(done, own, "{of:?}"),
            Of::SomebodyWithout => assert_eq!(done, [""; 0], "{of:?}"),
        }
    }
}

/// MGP-227: no program a server writes gives another user its rights, whatever call makes it.
#[tokio::test(flavor = "multi_thread")]
async fn no_call_that_takes_a_mode_sets_an_id_bit() {
    if is_unheld().await {
        return;
    }
    let code = r##"
os.chdir(sys.argv[1])
fd = os.open("plain", os.O_CREAT | os.O_RDWR, 0o755)
os.write(fd, b"#!/bin/sh\n")
for bit in 0o4755, 0o2755, 0o6755:
    n = oct(bit)
    tries("chmod" + n, lambda: os.chmod("plain", bit))
    tries("fchmod" + n, lambda: os.fchmod(fd, bit))
    tries("fchmodat2" + n, lambda: call(452, -100, b"plain", bit, 0))
    tries("open" + n, lambda: os.open("open" + n, os.O_CREAT | os.O_WRONLY, bit))
    tries("creat" + n, lambda: call(85, b"creat" + n.encode(), bit))
    tries("tmpfile" + n, lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, bit))
    tries("mknod" + n, lambda: os.mknod("node" + n, bit | 0o100000))
    tries("mkfifo" + n, lambda: os.mkfifo("fifo" + n, bit))
    tries("mkdir" + n, lambda: os.mkdir("folder" + n, bit))
    how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, bit, 0)
    tries("openat2" + n, lambda: call(437, -100, b"two" + n.encode(), how, 24))
# Where a mode stands that does not count it may say what it likes.
os.close(os.open("plain", os.O_RDONLY, 0o6755))
"##;
    for of in Of::all() {
        let mut scene = of.scene(SHELL, LEAST).await;
        let own = scene.own().join("tmp");
        let done = python(&mut scene, code, &[own.to_str().unwrap()]).await;
        assert_eq!(done, [""; 0], "{of:?}");
        let made = fs::read_dir(&own).unwrap().flatten().collect::<Vec<_>>();
        assert!(!made.is_empty());
        for entry in made {
            let mode = entry.metadata().unwrap().mode();
            assert_eq!(mode & 0o6000, 0, "{of:?}: {entry:?} has {mode:o}");
        }
    }
}

/// Gets away by all means there are: another session, a second fork, no environment, no ear for
/// SIGTERM, and if it can the kernel's own group. Whoever is left has the name given.
const ESCAPE: &str = r#"
for asks in range(3):
    if os.fork() == 0:
        tries("joined", lambda: os.setpgid(0, int(sys.argv[2])))
        null = os.open("/dev/null", os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        if os.fork() == 0:
            if asks: os.setsid()
            for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(s, signal.SIG_IGN)
            os.execve(sys.executable, ["python3", "-c", "import time\nwhile 1: time.sleep(9)", sys.argv[1]], {})
        if asks < 2: os._exit(0)
        time.sleep(9999)
tries("killed", lambda: os.kill(int(sys.argv[2]), signal.SIGKILL))
time.sleep(0.3)
os._exit(0)
"#;

/// The processes that were given this name, whoever started them.
fn called(name: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |pid: &u32| {
        let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        args.split(|byte| *byte == 0)
            .any(|arg| arg == name.as_bytes())
    };
    numbers.filter(has).collect()
}

/// Starts them, and sees that they run.
async fn escapees(scene: &mut Scene, of: Of, round: &str) -> String {
    let name = format!("{}-{round}", scene.home.path().display());
    let group = scene.kernel.pid().to_string();
    let code = format!("{TRYING}{ESCAPE}");
    let args = json!({"what": "run", "at": "/bin/sh",
        "args": ["-c", "exec \"$@\" 2>/dev/null", "sh", PYTHON, "-c", code, name, group]});
    // What keeps running may keep its pipes: the answer is not waited for.
    let call = json!({"name": "it:attempt", "arguments": args});
    let mut other = Agent::over_http(scene.kernel.url());
    other.initialize("2025-11-25", "{}").await.result();
    other.start("tools/call", call).await;
    wait_until("somebody got away", DEADLINE, async || {
        called(&name).len() >= 3
    })
    .await;
    assert!(Path::new(&format!("/proc/{group}")).exists(), "{of:?}");
    name
}

/// MCP-020 to MCP-023, MGP-227: nothing of a sandboxed server runs when its stop was answered, after a
/// restart, or after its kernel was killed; whatever it did to get away.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandboxed_server_does_not_outlive_its_stop_its_restart_or_its_kernel() {
    if is_unheld().await {
        return;
    }
    for of in Of::all() {
        let mut scene = of
            .scene(&format!("stop_grace_ms = 200\n{SHELL}"), LEAST)
            .await;
        for verb in ["stop", "restart"] {
            let name = escapees(&mut scene, of, verb).await;
            scene.kernel.mgp_json(&["servers", verb, "it"]).await;
            assert_eq!(called(&name), [0; 0], "{of:?}: {verb} was answered");
            scene.kernel.mgp_json(&["servers", "start", "it"]).await;
            scene.kernel.connected(&["it"]).await;
        }
        let mut took = killed(scene, of).await;
        // The time is the guard's, not that of a machine with other things to do.
        for _ in 0..2 {
            if took >= ORPHANS {
                let scene = of.scene(SHELL, LEAST).await;
                took = took.min(killed(scene, of).await);
            }
        }
        assert!(took < ORPHANS, "{of:?}: {took:?}");
    }
}

/// How long something of a server ran when its kernel was killed.
async fn killed(mut scene: Scene, of: Of) -> Duration {
    let name = escapees(&mut scene, of, "kill").await;
    let leader = scene.server().await["pid"].as_u64().unwrap();
    let pid = nix::unistd::Pid::from_raw(scene.kernel.pid().cast_signed());
    let killed = Instant::now();
    nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
    wait_until("nobody is left", DEADLINE, async || {
        called(&name).is_empty() && !Path::new(&format!("/proc/{leader}/exe")).exists()
    })
    .await;
    killed.elapsed()
}

/// MGP-277: what is taken back is taken back from the life that had it, too, and a server that is taken
/// out leaves nobody.
#[tokio::test(flavor = "multi_thread")]
async fn revoked_permission_ends_for_the_running_server() {
    if is_unheld().await {
        return;
    }
    for of in Of::all() {
        let keys = "stop_grace_ms = 200\npermission_policy = \"auto_approve\"\n";
        let needs = "permissions_required = [\"shell.execute\", \"network.outbound\"]\n";
        let mut scene = of.scene(keys, &format!("{LEAST}{needs}")).await;
        let name = escapees(&mut scene, of, "deny").await;
        let before = scene.server().await["pid"].clone();
        let denied = scene.kernel.mgp(&["deny", "it", "network.outbound"]).await;
        assert!(denied.status.success());
        wait_until("it is started again", DEADLINE, async || {
            let now = scene.server().await;
            now["state"] == "connected" && now["pid"] != before
        })
        .await;
        assert_eq!(called(&name), [0; 0], "{of:?}");
        let (name, before) = (escapees(&mut scene, of, "remove").await, scene.kernel.pid());
        scene.kernel.rewrite("");
        wait_until("nobody is left", DEADLINE, async || {
            called(&name).is_empty()
        })
        .await;
        assert!(
            Path::new(&format!("/proc/{before}/exe")).exists(),
            "the kernel runs on"
        );
    }
}

/// MGP-227: limits and priorities of the kernel and of other servers stay theirs; its own are its own.
#[tokio::test(flavor = "multi_thread")]
async fn limits_and_priorities_of_others_are_out_of_reach() {
    if is_unheld().await {
        return;
    }
    let code = r#"
for n, pid in enumerate(map(int, sys.argv[1:])):
    tries(f"{n} prlimit", lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1)))
    tries(f"{n} setpriority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 9))
    tries(f"{n} setpriority of a group", lambda: os.setpriority(os.PRIO_PGRP, pid, 9))
    tries(f"{n} affinity", lambda: os.sched_setaffinity(pid, {0}))
    tries(f"{n} scheduler", lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)))
    tries(f"{n} param", lambda: os.sched_setparam(pid, os.sched_param(0)))
    tries(f"{n} ioprio", lambda: call(251, 1, pid, 3 << 13))
try:
    os.setpriority(os.PRIO_USER, os.getuid(), 11)
    call(251, 3, os.getuid(), 3 << 13)
except OSError: pass
resource.prlimit(0, resource.RLIMIT_CPU)
resource.prlimit(0, resource.RLIMIT_CPU, (9999, 9999))
os.setpriority(os.PRIO_PROCESS, 0, 12)
os.sched_setaffinity(0, os.sched_getaffinity(0))
import threading
tries("own thread", lambda: os.sched_setaffinity(threading.get_native_id(), os.sched_getaffinity(0)))
"#;
    for of in Of::all() {
        let mut scene = of.scene(SHELL, LEAST).await;
        let kernel = scene.kernel.pid();
        let nice = |pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let (_, fields) = stat.rsplit_once(") ").unwrap();
            fields.split(' ').nth(16).unwrap().to_owned()
        };
        let before = nice(kernel);
        let leader = scene.server().await["pid"].to_string();
        let done = python(&mut scene, code, &[&kernel.to_string(), &leader]).await;
        match of {
            Of::Me | Of::Somebody => assert_eq!(done, ["own thread"], "{of:?}"),
            Of::SomebodyWithout => assert_eq!(done, [""; 0], "{of:?}"),
        }
        assert_eq!(nice(kernel), before, "{of:?}");
        let limits = fs::read_to_string(format!("/proc/{kernel}/limits")).unwrap();
        assert!(
            limits
                .lines()
                .any(|line| line.starts_with("Max cpu time") && line.contains("unlimited"))
        );
    }
}

/// MGP-227: System V memory of other programs is not read, and its own is within its limits and gone with it.
#[tokio::test(flavor = "multi_thread")]
async fn shared_memory_of_other_programs_is_not_reached() {
    if is_unheld().await {
        return;
    }
    let code = r#"
tries("attached", lambda: call(30, int(sys.argv[1]), 0, 0))
tries("found", lambda: call(29, int(sys.argv[2], 0), 0, 0))
tries("three gigabytes", lambda: call(29, 0, 3 << 30, 0o1600))
tries("removed", lambda: call(31, int(sys.argv[1]), 0, 0))
"#;
    let made = Command::new("ipcmk")
        .args(["-M", "4096", "-p", "0666"])
        .output();
    let Ok(made) = made else {
        eprintln!("SKIPPED: there is no ipcmk");
        return;
    };
    let said = String::from_utf8_lossy(&made.stdout).into_owned();
    let id = said.trim().rsplit(' ').next().unwrap().to_owned();
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let key = table
        .lines()
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let key = key
        .filter(|line| line[1] == id)
        .map(|line| line[0].to_owned())
        .next()
        .unwrap();
    let mut found = Vec::new();
    for of in Of::all() {
        let mut scene = of.scene(SHELL, LEAST).await;
        found.push((of, python(&mut scene, code, &[&id, &key]).await));
    }
    let ended = Command::new("ipcrm").args(["-m", &id]).status().unwrap();
    assert!(ended.success(), "it is still there");
    for (of, done) in found {
        assert_eq!(done, [""; 0], "{of:?}");
    }
}

/// MGP-227: package managers change modes and times of what they install, which is their own; without
/// network, from folders beside.
#[tokio::test(flavor = "multi_thread")]
async fn package_managers_work_in_the_own_folder_of_a_sandboxed_server() {
    if is_unheld().await {
        return;
    }
    let script = r##"
set -e
cd "$HOME"
mkdir pkg npm
echo 'word = "installed"' > pkg/sample.py
cat > pkg/pyproject.toml <<'EOF'
[build-system]
requires = []
build-backend = "build"
backend-path = ["."]
EOF
cat > pkg/build.py <<'EOF'
import zipfile
ABOUT = {
    "METADATA": "Metadata-Version: 2.1\nName: sample\nVersion: 1\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "RECORD": "sample.py,,\n",
}
def build_wheel(folder, config=None, metadata=None):
    name = "sample-1-py3-none-any.whl"
    with zipfile.ZipFile(folder + "/" + name, "w") as made:
        made.write("sample.py")
        for file, text in ABOUT.items():
            made.writestr("sample-1.dist-info/" + file, text)
    return name
EOF
echo '{"name": "sample", "version": "1.0.0", "main": "m.js", "bin": "m.js", "scripts": {"install": "touch ran"}}' > npm/package.json
printf '#!/usr/bin/env node\nconsole.log("installed")\n' > npm/m.js
has() { command -v "$1" > /dev/null || { echo "no $1"; false; }; }
python() { PYTHONPATH="$1" python3 -c 'import sample; print("'$1'", sample.word)'; }
PATH=/usr/bin:$PATH
if python3 -c 'import pip' 2> /dev/null; then
    python3 -m pip install -q --no-index --no-build-isolation --no-deps --no-cache-dir --target pip ./pkg >&2
    python pip
else echo "no pip"; fi
if has uv; then
    uv pip install -q --offline --no-index --no-build-isolation --python /usr/bin/python3 --target uv ./pkg >&2
    python uv
fi
if has npm; then
    mkdir app; cd app; echo '{}' > package.json
    npm install --offline --no-audit --no-fund --install-links ../npm >&2
    test -f node_modules/sample/ran && test -x node_modules/.bin/sample
    echo npm $(node node_modules/.bin/sample)
    cd ..
fi
if has git; then
    git init -q -b main source; cd source
    cp -p ../pkg/sample.py .; chmod 755 sample.py
    git add . ; git -c user.name=a -c user.email=a@b.c commit -qm one >&2
    cd ..; git clone -q "file://$PWD/source" copy >&2
    test -x copy/sample.py
    echo git installed
fi
"##;
    for of in Of::all() {
        if of == Of::SomebodyWithout {
            continue;
        }
        let mut scene = of.scene(SHELL, LEAST).await;
        let ran = json!({"what": "run", "at": "/bin/sh", "args": ["-c", script]});
        let said = scene.attempt(ran).await.unwrap();
        for (line, name) in said.lines().zip(["pip", "uv", "npm", "git"]) {
            if line == format!("no {name}") {
                eprintln!("SKIPPED: there is no {name}, it was not tried")
            } else {
                assert_eq!(line, format!("{name} installed"), "{of:?}")
            }
        }
        assert_eq!(said.lines().count(), 4, "{said}");
    }
}

/// A kernel that runs as root and cannot give its servers another user's place says so, and what to do.
#[tokio::test(flavor = "multi_thread")]
async fn root_starts_no_sandboxed_server_as_root() {
    if is_unheld().await {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run as root: nothing was tried");
        return;
    }
    let programs = programs();
    let program = programs.path().join("mgp");
    let home = home();
    let behind = [
        "setpriv",
        "--bounding-set=-sys_admin",
        program.to_str().unwrap(),
    ];
    let config = config(&home, "restart_policy = \"never\"\n", LEAST, &[]);
    let kernel = Kernel::behind(&behind, TempDir::new().unwrap(), &config, &[]).await;
    let mut server = Value::Null;
    wait_until("it is refused", DEADLINE, async || {
        server = kernel.mgp_json(&["servers", "list"]).await["servers"][0].clone();
        ["error", "connected"].contains(&server["state"].as_str().unwrap())
    })
    .await;
    let reason = server["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("the kernel runs as root") && reason.contains("another user"),
        "{server:#}"
    );
}
