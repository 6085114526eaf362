"""The pods for trying the clients."""

IMAGE = "registry.k8s.io/e2e-test-images/busybox:1.29-2"
WEB = "mkdir /www; echo forwarded > /www/file; httpd -p 127.0.0.1:8080 -h /www; while :; do sleep 1; done"
# Ends itself, so following its log ends.
TICKER = "until [ -e /go ]; do sleep 0.1; done; for number in $(seq 20); do echo tick $number; sleep 1; done"

# By name: the command, and whether it has a terminal with an input.
PODS = {"web": (["sh", "-c", WEB], False), "shell": (["sh"], True), "ticker": (["sh", "-c", TICKER], False)}
