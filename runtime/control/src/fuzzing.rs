//! Fuzz target and property tests: client requests to the router and the connections of the server.
//! The fuzzer (`cargo xtask fuzz`) and the tests use the same function.

mod answer;
mod request;

use std::time::Duration;

use mqnet_host::testing::settle;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::calls::{HostHandle, calls};
use crate::server::serve_stream;
use crate::testing::TestHost;
use answer::{Answer, Reader};
use request::{Choices, Request};

/// Largest number of requests in one input.
const REQUESTS: usize = 20;
/// Buffer size of a connection, so that the client's writes never block.
const STREAM: usize = 4 << 20;
/// Time limit for an answer, longer than the sum of all limits of the server. The clock of the
/// runtime is paused: time jumps to the next timer when no task can run.
const LIMIT: Duration = Duration::from_secs(200);
/// Time limit for a connection with arbitrary bytes, which needs no answer.
const LENIENT: Duration = Duration::from_secs(40);

/// Interprets bytes as requests of a client. Panics if a complete request gets no answer, or if an
/// answer has an undocumented status or an invalid body.
pub fn requests(data: &[u8]) {
    run(data);
}

/// Runs the requests in `data` and returns the statuses of the answers to complete requests.
fn run(data: &[u8]) -> Vec<u16> {
    let mut choices = Choices(data);
    let builder =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let Ok(runtime) = builder else { return Vec::new() };
    let (handle, mut calls) = calls();
    let mut host = TestHost::new();
    let is_held = choices.byte() & 1 == 1;
    host.hold(is_held);
    runtime.block_on(async {
        let mut client = Client::new(handle);
        // The links use the real clock, so a change can complete while the runtime's clock is
        // paused.
        let serve = async {
            while calls.run_next(&mut host).await {
                if !is_held {
                    settle(&mut host.links);
                }
            }
        };
        tokio::select! {
            () = client.run(&mut choices) => {}
            () = serve => {}
        }
        client.tasks.abort_all();
        while let Some(ended) = client.tasks.join_next().await {
            if let Err(e) = ended.map_err(|e| e.try_into_panic())
                && let Ok(panic) = e
            {
                std::panic::resume_unwind(panic);
            }
        }
        client.statuses
    })
}

struct Client {
    handle: HostHandle,
    /// Server tasks, one per connection.
    tasks: JoinSet<()>,
    /// Open connection that the next request may reuse.
    open: Option<Reader>,
    /// Requests with answers that are read after all other requests.
    deferred: Vec<(Reader, Request)>,
    /// Statuses of the answers to complete requests.
    statuses: Vec<u16>,
}

impl Client {
    fn new(handle: HostHandle) -> Self {
        let (tasks, deferred, statuses) = (JoinSet::new(), Vec::new(), Vec::new());
        Self { handle, tasks, open: None, deferred, statuses }
    }

    async fn run(&mut self, choices: &mut Choices<'_>) {
        for _ in 0..REQUESTS {
            if choices.0.is_empty() {
                break;
            }
            let request = Request::new(choices);
            if request.is_complete {
                self.complete(request).await;
            } else {
                self.incomplete(&request).await;
            }
        }
        for (mut reader, request) in std::mem::take(&mut self.deferred) {
            let Some(answer) = read(&mut reader, &request).await else {
                panic!("no answer to {}", request.text());
            };
            answer.check(&request);
            self.statuses.push(answer.status);
        }
    }

    fn connect(&mut self) -> Reader {
        let (here, there): (DuplexStream, DuplexStream) = duplex(STREAM);
        self.tasks.spawn(serve_stream(there, self.handle.clone()));
        Reader::new(here)
    }

    /// Sends a request, and checks that the server answers it.
    async fn complete(&mut self, request: Request) {
        let mut reused = self.open.take();
        loop {
            let is_reused = reused.is_some();
            let mut reader = reused.take().unwrap_or_else(|| self.connect());
            let sent = reader.stream.write_all(&request.bytes).await;
            if !is_reused && request.is_deferred {
                self.deferred.push((reader, request));
                return;
            }
            let answer = match sent {
                Ok(()) => read(&mut reader, &request).await,
                Err(_) => None,
            };
            match answer {
                Some(answer) => {
                    answer.check(&request);
                    self.statuses.push(answer.status);
                    self.open = (!answer.ends).then_some(reader);
                    return;
                }
                // The server may close a connection after any answer; the request is then sent on a
                // new connection.
                None => assert!(is_reused, "no answer to {}", request.text()),
            }
        }
    }

    /// Sends arbitrary bytes and closes the connection. The server may or may not answer; every
    /// answer must be valid.
    async fn incomplete(&mut self, request: &Request) {
        let mut reader = self.open.take().unwrap_or_else(|| self.connect());
        let _ = reader.stream.write_all(&request.bytes).await;
        let _ = reader.stream.shutdown().await;
        let all = async {
            while let Some(answer) = reader.answer(false).await {
                answer.check(request);
                if answer.ends {
                    break;
                }
            }
        };
        let _ = timeout(LENIENT, all).await;
    }
}

async fn read(reader: &mut Reader, request: &Request) -> Option<Answer> {
    let answer = timeout(LIMIT, reader.answer(request.is_head)).await;
    answer.unwrap_or_else(|_| panic!("no answer in time to {}", request.text()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{request, run};

    // Goal: an input can change the number of channels of the host, and can contain a value that
    // the server rejects.
    #[test]
    fn inputs_reach_the_host() {
        let change = |value: u8| {
            let operation = request::number_of("PATCH", "/v1/netdevs/{dev}/channels");
            let head = [&[0, operation][..], &[0; 10]].concat();
            [&head[..], &[0, 0, 0, value, 0], &[0; 4]].concat()
        };
        let requests = [vec![0], change(2), change(0), change(1)].concat();
        assert_eq!(run(&requests), [200, 400, 200]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        // Goal: for any sequence of requests, the server does not panic, answers every complete
        // request, and answers only with documented statuses and JSON.
        #[test]
        fn any_requests_are_answered(data in prop::collection::vec(any::<u8>(), 0..400)) {
            super::requests(&data);
        }
    }
}
