#!/bin/sh
# PBS Professional: running, success or failed for the job with number $1. A server that does not answer says nothing
# about the job: called failed, it would be submitted again beside itself.
state=$(qstat -x -f "$1" 2>&1) || {
  case "$state" in *"Unknown Job"*) echo failed ;; *) echo running ;; esac
  exit
}
case "$state" in
  *"job_state = F"* | *"job_state = C"*)
    case "$state" in *"Exit_status = 0"*) echo success ;; *) echo failed ;; esac ;;
  *) echo running ;;
esac
