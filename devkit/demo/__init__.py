"""The whole path on local servers in one command, judged by a native subscription."""
