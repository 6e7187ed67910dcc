#!/bin/sh
# PBS Professional: running, success or failed for the job with number $1.
state=$(qstat -x -f "$1" 2>/dev/null) || { echo failed; exit; }
case "$state" in
  *"job_state = F"* | *"job_state = C"*)
    case "$state" in *"Exit_status = 0"*) echo success ;; *) echo failed ;; esac ;;
  *) echo running ;;
esac
