//! The end of the proxy while something is being loaded: nobody waits for that, and nothing is left behind.
//!
//! With sockets and a real process, in real time: what only shows there. Nothing is measured; a proxy that waits would wait for
//! its `drain`.

use std::net::SocketAddr;
use std::path::Path;
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

#[tokio::test]
async fn a_proxy_that_is_stopped_gives_up_its_loads_tells_who_waits_and_leaves_no_server_behind() {
    let folder = std::env::temp_dir().join(format!("switchback-stopping-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("pid");
    let start = format!("echo $$ > {}; exec sleep 1000", file.display());
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1h\"\n[loader]\ndriver = \"command\"\n[[backend]]\nname = \"a\"\n\
         url = \"http://127.0.0.1:9\"\nengine = \"llama-cpp\"\nwindow = 8000\nload = {{ start = [\"sh\", \"-c\", {start:?}] }}\n"
    );
    let config = Config::parse(&text, Path::new(".")).expect("a configuration that makes sense");
    let proxy = Proxy::start(config).await.expect("it starts");
    let at = proxy.address();
    let body = r#"{"model":"auto","messages":[{"role":"user","content":"hi"}]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let waits = tokio::spawn(async move { exchange(at, &request).await });
    let server = until_file(&file).await;
    proxy.shut_down().await;
    let answer = waits.await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("a has to be loaded, and this proxy is being stopped"), "{answer}");
    let left = std::fs::read_to_string(format!("/proc/{server}/stat"));
    assert!(left.is_err() || left.is_ok_and(|stat| stat.contains(") Z ")), "the server is left behind");
    std::fs::remove_dir_all(&folder).expect("it was there");
}
