//! The end of the proxy while something is being loaded: nobody waits for that, and nothing is left behind.
//!
//! With sockets and a real process, in real time: what only shows there. Nothing is measured; a proxy that waits would wait for
//! its `drain`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use switchback::{Config, Proxy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

async fn exchange(to: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(to).await.expect("it listens");
    stream.write_all(request.as_bytes()).await.expect("it takes requests");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

async fn until_file(file: &Path) -> String {
    loop {
        match std::fs::read_to_string(file) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// A server that never becomes ready, and writes its number into a file.
struct Server {
    folder: PathBuf,
}

impl Server {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("switchback-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self { folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("pid")
    }

    /// A configuration that loads it as the backend `a`.
    fn configuration(&self) -> String {
        let start = format!("echo $$ > {}; exec sleep 1000", self.file().display());
        format!(
            "{OTHER}[[backend]]\nname = \"a\"\nurl = \"http://127.0.0.1:9\"\nengine = \"llama-cpp\"\nwindow = 8000\n\
             load = {{ start = [\"sh\", \"-c\", {start:?}] }}\n[[model]]\nname = \"a\"\nbackends = [\"a\"]\n"
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Without it.
const OTHER: &str = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1h\"\n[loader]\ndriver = \"command\"\n[[backend]]\nname = \"b\"\n\
    url = \"http://127.0.0.1:7\"\nengine = \"llama-cpp\"\nwindow = 8000\nload = { start = [\"true\"] }\n";

fn parsed(text: &str) -> Config {
    Config::parse(text, Path::new(".")).expect("a configuration that makes sense")
}

fn request() -> String {
    let body = r#"{"model":"a","messages":[{"role":"user","content":"hi"}]}"#;
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn runs(server: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{server}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn a_proxy_that_is_stopped_gives_up_its_loads_tells_who_waits_and_leaves_no_server_behind() {
    let server = Server::new("stopping");
    let proxy = Proxy::start(parsed(&server.configuration())).await.expect("it starts");
    let at = proxy.address();
    let waits = tokio::spawn(async move { exchange(at, &request()).await });
    let number = until_file(&server.file()).await;
    proxy.shut_down().await;
    let answer = waits.await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("a has to be loaded, and this proxy is being stopped"), "{answer}");
    assert!(!runs(&number), "the server is left behind");
}

#[tokio::test]
async fn a_server_whose_backend_is_taken_out_of_the_configuration_does_not_stay_on_its_card() {
    let server = Server::new("stray");
    let proxy = Proxy::start(parsed(&server.configuration())).await.expect("it starts");
    let at = proxy.address();
    let waits = tokio::spawn(async move { exchange(at, &request()).await });
    let number = until_file(&server.file()).await;
    waits.abort();
    proxy.reload(parsed(OTHER));
    while runs(&number) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    proxy.shut_down().await;
}
