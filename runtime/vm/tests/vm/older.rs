//! VMMs of an earlier build. They support only images of one file, and neither file locks nor groups.

use std::fs::File;
use std::os::fd::OwnedFd;

use proto_vmm::{Device, ImagePart, Message, Request, Response, Slot};
use runtime_vm::{Vm, VmError};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

fn file() -> OwnedFd {
    File::open("/dev/null").unwrap().into()
}

/// Field 22 of this process's `stat`.
fn start_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let rest = stat.rsplit_once(')').unwrap().1;
    rest.split_whitespace().nth(19).unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_older_vmm_plugs_images_of_one_file_and_its_release_is_said_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let listener =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(dir.path().join("control.sock")).unwrap()).unwrap();
    rustix::net::listen(&listener, 4).unwrap();
    let vmm = std::thread::spawn(move || {
        let client = rustix::net::accept(&listener).unwrap();
        let answers = [Response::Hello { version: 1, release: "0.9.1".to_owned() }, Response::Plugged];
        answers.map(|answer| {
            let packet = proto_vmm::recv(&client).unwrap().unwrap();
            let Message::Request { id, request } = packet.message else { panic!("not a request") };
            proto_vmm::send(&client, &Message::Response { id, result: Ok(answer) }, &[]).unwrap();
            request
        })
    });
    let vm = Vm::attach(dir.path(), std::process::id(), start_time()).await.unwrap();
    let slot = Slot::pmems().next().unwrap();
    let parts = vec![
        ImagePart { file: file(), offset: 0, length: 2 << 20 },
        ImagePart { file: file(), offset: 2 << 20, length: 2 << 20 },
    ];
    let refused = vm.plug(slot, Device::Layered { parts }).await.unwrap_err();
    assert!(matches!(refused, VmError::Old { .. }));
    assert_eq!(
        refused.to_string(),
        "the pod's VMM is of release 0.9.1 and cannot plug the image of several files: delete the pod to recreate it"
    );
    vm.interrupt_lock_waits(&[4711]).await.unwrap();
    vm.share_groups(&[4711].into()).await.unwrap();
    vm.plug(slot, Device::Pmem { image: file() }).await.unwrap();
    let [_, asked] = vmm.join().unwrap();
    assert!(
        matches!(asked, Request::Plug { device: Device::Pmem { .. }, .. }),
        "nothing else was sent: {asked:?}"
    );
}
