//! The container image, as an OCI layout in a tar archive (image-spec 1.0): written here, without a container engine. It
//! has the program, the C library that it was linked with, and the authorities of this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::staging::reproducible_tar;
use super::{Release, VERSION, create_folder, digest, output_of, read, run, write};

/// The certificates of authorities, where Debian and others have them.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The user that the program runs as.
const USER: u32 = 10_001;
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// Where the layer of an image can be found again.
pub(super) fn name(release: &Release) -> String {
    format!("{}.oci.tar", release.name())
}

pub(super) fn make(release: &Release) -> Result<String, String> {
    let folder = release.staging.folder();
    let root = folder.join("root");
    fill_root(release, &root)?;
    let layout = folder.join("layout");
    create_folder(&layout.join("blobs/sha256"))?;
    let tar = folder.join("layer.tar");
    let parts = ["etc", "tmp", "usr"];
    let libraries = ["lib", "lib64"]
        .into_iter()
        .filter(|part| root.join(part).is_dir());
    run(reproducible_tar(&root)
        .arg("-cf")
        .arg(&tar)
        .args(parts)
        .args(libraries))?;
    // The folders of the user, which the kernel writes to; all others are root's.
    let own = [format!("--owner={USER}"), format!("--group={USER}")];
    run(reproducible_tar(&root)
        .args(own)
        .arg("-rf")
        .arg(&tar)
        .arg("home"))?;
    let uncompressed = digest::sha256(&read(&tar)?);
    run(Command::new("gzip").args([release.level(), "-n"]).arg(&tar))?;
    let layer = add_blob(
        &layout,
        "application/vnd.oci.image.layer.v1.tar+gzip",
        &read(&folder.join("layer.tar.gz"))?,
    )?;
    let config = add_json(
        &layout,
        "application/vnd.oci.image.config.v1+json",
        &image_config(release, &uncompressed),
    )?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": [layer],
    });
    let mut manifest = add_json(&layout, MANIFEST_TYPE, &manifest)?;
    manifest["annotations"] = json!({
        "org.opencontainers.image.ref.name": VERSION,
        "io.containerd.image.name": format!("mgp:{VERSION}"),
    });
    write(
        &layout.join("oci-layout"),
        r#"{"imageLayoutVersion":"1.0.0"}"#,
    )?;
    let index = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    write(&layout.join("index.json"), index.to_string())?;
    let place = release.folder.join(name(release));
    let parts = ["oci-layout", "index.json", "blobs"];
    run(reproducible_tar(&layout).arg("-cf").arg(&place).args(parts))?;
    Ok(name(release))
}

/// The files of the only layer.
fn fill_root(release: &Release, root: &Path) -> Result<(), String> {
    release.staging.copy_to(&root.join("usr"))?;
    for library in libraries(&root.join("usr/bin/mgp"))? {
        let place = root.join(library.strip_prefix("/").unwrap_or(&library));
        create_folder(place.parent().expect("it is in a folder"))?;
        // A link is followed: the layer has no other names of a library.
        fs::copy(&library, &place).map_err(|why| format!("{}: {why}", library.display()))?;
    }
    let configuration = "home/mgp/.config/mgp";
    let data = "home/mgp/.local/share/mgp";
    for folder in ["etc/ssl/certs", "tmp", configuration, data] {
        create_folder(&root.join(folder))?;
    }
    set_mode(&root.join("tmp"), 0o1777)?;
    for private in [configuration, data] {
        set_mode(&root.join(private), 0o700)?;
    }
    let user =
        format!("root:x:0:0:root:/:/bin/false\nmgp:x:{USER}:{USER}:mgp:/home/mgp:/bin/false\n");
    write(&root.join("etc/passwd"), user)?;
    write(
        &root.join("etc/group"),
        format!("root:x:0:\nmgp:x:{USER}:\n"),
    )?;
    if Path::new(AUTHORITIES).is_file() {
        let place = root.join(AUTHORITIES.trim_start_matches('/'));
        fs::copy(AUTHORITIES, place).map_err(|why| format!("{AUTHORITIES}: {why}"))?;
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<(), String> {
    let mode = fs::Permissions::from_mode(mode);
    fs::set_permissions(path, mode).map_err(|why| format!("{}: {why}", path.display()))
}

/// The paths of the libraries that the program loads, and of what loads them.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, String> {
    let listed = output_of(Command::new("ldd").arg(program))?;
    let paths = listed.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.find(|word| word.starts_with('/')).map(PathBuf::from)
    });
    Ok(paths.collect())
}

fn image_config(release: &Release, uncompressed: &str) -> Value {
    json!({
        "architecture": match release.machine { "x86_64" => "amd64", "aarch64" => "arm64", other => other },
        "os": release.system,
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/usr/bin", "HOME=/home/mgp", format!("SSL_CERT_FILE={AUTHORITIES}")],
            "WorkingDir": "/home/mgp",
            "Entrypoint": ["/usr/bin/mgp"],
            "Cmd": ["up"],
            "Volumes": {"/home/mgp/.config/mgp": {}, "/home/mgp/.local/share/mgp": {}},
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "mgp",
                "org.opencontainers.image.version": VERSION,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{uncompressed}")]},
    })
}

fn add_json(layout: &Path, media_type: &str, value: &Value) -> Result<Value, String> {
    add_blob(layout, media_type, value.to_string().as_bytes())
}

/// Stores a blob under its digest; returns its descriptor.
fn add_blob(layout: &Path, media_type: &str, bytes: &[u8]) -> Result<Value, String> {
    let sum = digest::sha256(bytes);
    write(&layout.join("blobs/sha256").join(&sum), bytes)?;
    Ok(json!({"mediaType": media_type, "digest": format!("sha256:{sum}"), "size": bytes.len()}))
}
